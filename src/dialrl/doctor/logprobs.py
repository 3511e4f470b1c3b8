"""Sampler against trainer: the same ids, the log-probs of the one that drew them and of the one that trains them.

A few replies over two turns, so that the engine's reuse of prefixes is in it; then the trainer's own forward. A
difference means another precision, template or temperature, or weights that are not the same. Loads weights.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.concurrency import run_async
from dialrl.endpoint.calls import ModelCalls, connect
from dialrl.engine.base import Engine, Generation, GenerationRequest, SamplingSettings
from dialrl.model.context import DialogueContext
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for

DIALOGUES, TURNS, REPLY_TOKENS = 3, 2, 16
_SAID = ("I could not sleep again, and I keep thinking about what my brother said.", "Yes. What would you do?")
_OPENINGS = ("", "Hello. ", "Good evening. ")


@dataclass(frozen=True)
class Agreement:
    """``mean`` and ``largest`` of |log pi_trainer - log pi_sampler| over ``tokens`` sampled tokens."""

    tokens: int
    mean: float
    largest: float


@dataclass(frozen=True)
class Sampled:
    """One dialogue: ``ids_T`` (T,) of its segment, the places of its sampled tokens, and their log-probs."""

    ids_T: Sequence[int]
    places: Sequence[int]
    logprobs: Sequence[float]


def sample(engine: Engine, template: ChatTemplate, calls: ModelCalls, temperature: float) -> list[Sampled]:
    """Three short dialogues, drawn in turn as a rollout draws them. Raises what the engine raises."""
    settings = SamplingSettings(temperature=temperature, max_reply_tokens=REPLY_TOKENS)
    contexts = [DialogueContext(template, "append") for _ in range(DIALOGUES)]
    places: list[list[int]] = [[] for _ in contexts]
    logprobs: list[list[float]] = [[] for _ in contexts]
    connect(calls, engine)
    for turn in range(TURNS):
        for number, context in enumerate(contexts):
            said = Message("user", _OPENINGS[number] + _SAID[turn])
            _ = context.open([said]) if turn == 0 else context.next([said])
        requests = [
            GenerationRequest(list(context.context_ids), _seed(number, turn), f"doctor/{number}")
            for number, context in enumerate(contexts)
        ]
        for number, reply in enumerate(_drawn(engine, calls, requests, settings)):
            start = len(contexts[number].context_ids)
            places[number] += range(start, start + len(reply.reply_ids))
            logprobs[number] += reply.logprobs or ()
            text = template.decode_reply(reply.reply_ids, reply.finish_reason).text
            contexts[number].add_reply(reply.reply_ids, text, reply.finish_reason)
    return [Sampled(*one) for one in zip([context.context_ids for context in contexts], places, logprobs, strict=True)]


def _seed(number: int, turn: int) -> int:
    return seed_for(0, 0, "doctor", number, turn, "policy")


def _drawn(
    engine: Engine, calls: ModelCalls, requests: Sequence[GenerationRequest], settings: SamplingSettings
) -> list[Generation]:
    if engine.capabilities.schedule == "block":
        return engine.generate_block(requests, settings)

    async def draw() -> list[Generation]:
        async with calls:
            return [await engine.generate(request, settings) for request in requests]

    return run_async(draw())


def agreement(model: Any, sampled: Sequence[Sampled], *, temperature: float, layout: Any, precision: str) -> Agreement:
    """How far the trainer's log-probs of ``sampled`` are from the sampler's. ``precision``: fp32 or bf16."""
    import torch

    from dialrl.model.layout import prepare_layout
    from dialrl.model.logprobs import HeadSettings, token_logprobs
    from dialrl.model.packing import TokenSequence

    kept = [one for one in sampled if one.places]
    sequences = [TokenSequence(np.asarray(one.ids_T), np.asarray(one.places)) for one in kept]
    batch = prepare_layout(model, layout).batch(sequences, model.device)
    narrow = torch.autocast(model.device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
    with torch.no_grad(), narrow:
        ours_T = token_logprobs(model, batch, HeadSettings(temperature)).logprobs_T.double().cpu().numpy()
    theirs_T = np.concatenate([np.asarray(one.logprobs) for one in kept])
    difference_T = np.abs(ours_T - theirs_T)
    return Agreement(len(difference_T), float(difference_T.mean()), float(difference_T.max()))


def trainer_model(directory: Path, device: str) -> Any:
    """The model as the trainer loads it."""
    from dialrl.model.loading import LoadingSettings, load_model

    return load_model(directory, LoadingSettings(device=device))
