"""Builds the base policy of the search world: it copies and calls well, and answers too early (needs ``train``).

A tiny language model like the demo's, with every word of the world as one token and the tags of the grammar as one
token each. What was measured on held-out questions stands in ``report.json`` beside the weights.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dialrl.concurrency import run_async
from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.environment.base import PolicyReply
from dialrl.environment.demo.base_directory import REPORT_FILE, base_policy_directory
from dialrl.environment.demo.base_tokenizer import CHAT_TEMPLATE, CONTEXT_TOKENS, END_OF_TURN, PADDING, ROLE_TOKENS
from dialrl.environment.demo.base_training import DialogueEncoder, TrainingSettings, new_model, train
from dialrl.environment.search.environment import SearchEnvironment
from dialrl.environment.search.grammar import Answer, Fault, Search, read_reply
from dialrl.environment.search.world.facts import (
    BYNAME,
    CRAFTS,
    FAMILY,
    GIVEN,
    TOWN_FIRST,
    TOWN_SECOND,
    make_facts,
)
from dialrl.environment.search.world.files import PASSAGES, QUESTIONS
from dialrl.environment.search.world.lessons import lesson
from dialrl.environment.search.world.speech import ANSWER_BEGIN, ANSWER_END, CALL_BEGIN, CALL_END, shown
from dialrl.environment.search.world.texts import passages, world_questions
from dialrl.model.threads import fit_threads
from dialrl.progress import SILENT, Progress
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for

STEPS = 1600
COPYING_STEPS = 700
TURN_LIMIT = 5


@dataclass(frozen=True)
class SearchPolicyReport:
    """What the base policy does on held-out questions, sampling at temperature 1.

    ``copied``: of the words in its queries, the share that stood in the dialogue. ``well_formed``: share of its replies
    that are one call or one answer. ``f1``: mean outcome by hops (an oracle's is 1).
    """

    seed: int
    steps: int
    parameters: int
    loss: float
    dialogues: int
    copied: float
    well_formed: float
    turns: float
    f1: dict[str, float]


def build_tokenizer() -> Any:
    """A byte-level tokenizer with each word of the world, and each tag, as one token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [PADDING, END_OF_TURN, *ROLE_TOKENS, "<|tool|>"]
    pieces = sorted({piece for text in _texts() for piece, _ in cut.pre_tokenize_str(text)})
    tokens = list(dict.fromkeys([*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *pieces]))
    model = models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(
        [AddedToken(tag, normalized=False) for tag in (CALL_BEGIN, CALL_END, ANSWER_BEGIN, ANSWER_END)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def _texts() -> list[str]:
    """Texts that hold every word of any world."""
    facts = make_facts()
    names = [f" {word}" for words in (GIVEN, FAMILY, TOWN_FIRST, TOWN_SECOND, BYNAME, CRAFTS) for word in words]
    asked = [question.question.question for question in world_questions(facts)]
    return [*names, *asked, shown(passages(facts)[:2]), *(shown([passage]) for passage in passages(facts))]


def build_search_policy(
    output: Path,
    *,
    seed: int = 0,
    steps: int = STEPS,
    progress: Progress = SILENT,
    overwrite: bool = False,
    questions: int | None = None,
) -> SearchPolicyReport:
    """Trains the base policy and writes it, with its tokenizer and report, as a transformers directory.

    ``questions``: how many held-out questions it is measured on; none: all. Takes some minutes on one core.
    """
    copying = min(COPYING_STEPS, steps // 2)
    settings = TrainingSettings(steps=steps, copying_steps=copying)
    tokenizer = build_tokenizer()
    model = new_model(tokenizer, seed)
    fit_threads(model)
    losses = train(
        model,
        tokenizer,
        settings,
        seed=seed,
        progress=progress,
        lesson=lambda step, number: lesson(number, oracle=step < copying),
    )
    model.generation_config.update(do_sample=True, temperature=1.0, eos_token_id=tokenizer.eos_token_id)
    loss = sum(losses[-50:]) / len(losses[-50:])
    report = measure(model, tokenizer, seed=seed, steps=steps, loss=loss, limit=questions, progress=progress)
    with base_policy_directory(output, overwrite=overwrite) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / REPORT_FILE).write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    return report


def world_options() -> dict[str, Any]:
    """Options of the environment search for the world that ships."""
    return {
        "questions": QUESTIONS,
        "retriever_options": {"passages": PASSAGES},
        "system_prompt": "",
        "top_k": 2,
        "max_queries": 1,
        "turn_limit": TURN_LIMIT,
    }


def measure(
    model: Any,
    tokenizer: Any,
    *,
    seed: int = 0,
    steps: int = 0,
    loss: float = 0.0,
    limit: int | None = None,
    progress: Progress = SILENT,
) -> SearchPolicyReport:
    """Plays held-out questions, all in step, and counts."""
    environment = SearchEnvironment(**world_options())
    scenarios = list(environment.scenarios("test"))
    random.Random(seed).shuffle(scenarios)
    chosen = scenarios[:limit]
    progress.start("measure the base policy", len(chosen), "dialogues")
    played = run_async(_play(model, tokenizer, environment, chosen, seed, progress))
    read = [read_reply(m.content, max_queries=1) for one in played for m in one.transcript if m.role == "assistant"]
    copied = [flag for one in played for flag in one.copied()]
    by_hops: dict[str, list[float]] = {}
    for one in played:
        by_hops.setdefault(one.scenario.card["source"], []).append(one.outcome)
    return SearchPolicyReport(
        seed=seed,
        steps=steps,
        parameters=model.num_parameters(),
        loss=round(loss, 4),
        dialogues=len(played),
        copied=_mean(copied),
        well_formed=_mean([float(not isinstance(asked, Fault)) for asked in read]),
        turns=round(len(read) / len(played), 4),
        f1={hops: _mean(values) for hops, values in sorted(by_hops.items())},
    )


@dataclass
class _Played:
    scenario: Scenario
    session: Any
    transcript: list[Message]
    outcome: float = 0.0
    over: bool = False

    def copied(self) -> list[float]:
        """For each word of each query: whether it stood in the dialogue before."""
        seen, found = set[str](), list[float]()
        for message in self.transcript:
            asked = read_reply(message.content, max_queries=1) if message.role == "assistant" else None
            if isinstance(asked, Search):
                found += [float(word in seen) for word in asked.queries[0].split()]
            elif not isinstance(asked, Answer):
                seen |= set(message.content.replace(":", " ").split())
        return found


async def _play(
    model: Any,
    tokenizer: Any,
    environment: SearchEnvironment,
    scenarios: Sequence[Scenario],
    seed: int,
    progress: Progress,
) -> list[_Played]:
    from dialrl.engine.hf import HfEngine

    engine, encode = HfEngine(model, stop_ids=[tokenizer.eos_token_id]), DialogueEncoder(tokenizer)
    begin = tokenizer.convert_tokens_to_ids("<|assistant|>")
    played = [_Played(scenario, environment.open(scenario, 0), []) for scenario in scenarios]
    for one in played:
        one.transcript += (await one.session.opening()).messages
    for turn in range(TURN_LIMIT):
        open_ones = [one for one in played if not one.over]
        requests = [
            GenerationRequest(
                [*encode(one.transcript)[0], begin],
                seed=seed_for(seed, 0, one.scenario.scenario_id, 0, turn, "policy"),
                dialogue=one.scenario.scenario_id,
            )
            for one in open_ones
        ]
        if not requests:
            break
        for one, reply in zip(
            open_ones, engine.generate_block(requests, SamplingSettings(max_reply_tokens=12)), strict=True
        ):
            text = tokenizer.decode(reply.reply_ids[:-1] if reply.finish_reason == "stop" else reply.reply_ids)
            one.transcript.append(Message("assistant", text))
            step = await one.session.respond(PolicyReply(text, reply.finish_reason, turn), None)
            one.transcript += step.messages
            one.over, one.outcome = step.end_reason is not None, step.outcome or 0.0
        progress.advance(sum(one.over for one in open_ones))
    return played


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 4)
