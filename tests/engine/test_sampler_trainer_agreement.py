"""What is stored of a dialogue is what is trained: the trainer finds the sampler's log-probs (cases 4, 17, 19)."""

import numpy as np
import pytest
import torch
from tests.toys import CHATML, LLAMA3, THINKING, tiny_policy

from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.engine.hf import HfEngine
from dialrl.model.context import DialogueContext
from dialrl.model.loading import load_policy
from dialrl.model.logprobs import HeadSettings, token_logprobs
from dialrl.model.packing import TokenSequence, pad_sequences
from dialrl.model.template import ChatTemplate
from dialrl.scenario.message import Message

TURNS = 4


def rolled_out(engine: HfEngine, template: ChatTemplate, history: str, sampling: SamplingSettings):
    """Segments of six dialogues, each as ids, trained places and the sampler's log-probs."""
    contexts = {f"d{number}": DialogueContext(template, history) for number in range(6)}
    segments: dict[tuple[str, int], tuple[list[int], list[int], list[float]]] = {}
    for turn in range(TURNS):
        prompts = {}
        for name, context in contexts.items():
            message = [Message("user", f"hello {name}, turn {turn}")]
            prompts[name] = context.open(message) if turn == 0 else context.next(message)
        requests = [
            GenerationRequest(context.context_ids, seed=7 * turn + number, dialogue=name)
            for number, (name, context) in enumerate(contexts.items())
        ]
        for name, reply in zip(contexts, engine.generate_block(requests, sampling), strict=True):
            ids, places, logprobs = segments.setdefault((name, prompts[name].segment), ([], [], []))
            ids += prompts[name].new_ids
            places += range(len(ids), len(ids) + len(reply.reply_ids))
            ids += reply.reply_ids
            logprobs += reply.logprobs
            text = template.decode_reply(reply.reply_ids, reply.finish_reason).text
            contexts[name].add_reply(reply.reply_ids, text, reply.finish_reason)
    return segments


@pytest.mark.parametrize("history", ["append", "template"])
@pytest.mark.parametrize(
    ("chat_template", "options"), [(CHATML, {}), (LLAMA3, {}), (THINKING, {"enable_thinking": False})]
)
def test_the_trainer_sees_what_the_sampler_drew_from(tmp_path, chat_template, options, history):
    model, tokenizer = load_policy(tiny_policy(tmp_path, chat_template=chat_template))
    sampling = SamplingSettings(temperature=0.9, max_reply_tokens=16)
    engine = HfEngine(model, stop_ids=tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|eot_id|>", "e", "o", "t"]))
    segments = rolled_out(engine, ChatTemplate(tokenizer, options), history, sampling)
    sequences = [TokenSequence(np.array(ids), np.array(places)) for ids, places, _ in segments.values()]
    with torch.inference_mode():
        trainer = token_logprobs(model, pad_sequences(sequences), HeadSettings(temperature=0.9)).logprobs_T.numpy()
    sampler = np.concatenate([logprobs for _, _, logprobs in segments.values()])
    assert len(sampler) == len(trainer) > 6 * TURNS
    assert np.abs(sampler - trainer).mean() < 1e-5
    if options and history == "template":
        assert len(segments) == 6 * TURNS
