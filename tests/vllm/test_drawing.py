"""Replies from a real vLLM: segments by history mode, log-probs, greedy ids in and out of process, JSON by schema."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.trajectory_files import read

from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.chat import chat
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.engine.delivery_probe import probe_prompts
from dialrl.judge.reading import LONGEST_TEXT, answer_schema, read_answer
from dialrl.model.loading import LoadingSettings, load_model, load_tokenizer
from dialrl.model.logprobs import HeadSettings, token_logprobs
from dialrl.model.packing import TokenSequence, pad_sequences
from dialrl.model.template import ChatTemplate
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.stage import Policy, roll_out
from dialrl.scenario.message import Message

TURNS = 4
TIE = 1e-5
GREEDY = Path(__file__).parent / "greedy_in_process.py"


def rows_of(engine, policy, output, history):
    """Two dialogues with thinking off, so that the template rewrites the header of every reply."""
    thinking_off = {"enable_thinking": False}
    settings = {"groups": 1, "samples": 2, "max_turns": TURNS, "max_reply_tokens": 8, "temperature": 0.8}
    config = RolloutConfig(**settings, history=history, engine="vllm", template_options=thinking_off)
    template = ChatTemplate(load_tokenizer(policy), thinking_off)
    roll_out(Policy(engine, template, engine.policy_digest), output, config)
    return read(output)


def by_segment(rows):
    """Ids, sampled places and their log-probs of each training sequence."""
    segments = {}
    for row in rows:
        ids, places, logprobs = segments.setdefault((row["dialogue_id"], row["segment"]), ([], [], []))
        ids += row["prompt_ids"]
        places += range(len(ids), len(ids) + len(row["reply_ids"]))
        ids += row["reply_ids"]
        logprobs += row["reply_logprobs"]
    return segments


@pytest.mark.parametrize("policy", [True], indirect=True, ids=["tied"])
@pytest.mark.parametrize(("history", "segments"), [("append", 1), ("template", TURNS)])
def test_a_thinking_template_makes_segments_in_template_mode_and_none_in_append(
    engine, policy, tmp_path, history, segments
):
    rows = rows_of(engine, policy, tmp_path / "rollout.parquet", history)
    assert [row["status"] for row in rows] == ["ok"] * 2 * TURNS
    sequences = by_segment(rows)
    assert len(sequences) == 2 * segments
    packed = pad_sequences([TokenSequence(np.array(ids), np.array(at)) for ids, at, _ in sequences.values()])
    with torch.inference_mode():
        found = token_logprobs(load_model(policy, LoadingSettings()), packed, HeadSettings(temperature=0.8))
    sampler = np.concatenate([logprobs for _, _, logprobs in sequences.values()])
    assert np.abs(sampler - found.logprobs_T.numpy()).mean() < 1e-3


@pytest.mark.parametrize("policy", [True], indirect=True, ids=["tied"])
def test_in_process_and_server_agree_on_greedy_ids_one_request_at_a_time(engine, policy, tmp_path):
    prompts = [list(prompt) for prompt in probe_prompts(policy)]
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    command = [os.environ["DIALRL_VLLM_PYTHON"], GREEDY, policy, tmp_path / "prompts.json", tmp_path / "drawn.json"]
    ran = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    inside = json.loads((tmp_path / "drawn.json").read_text())
    model = load_model(policy, LoadingSettings())
    for prompt, reply, other in zip(prompts, served(engine, prompts), inside, strict=True):
        same = [a == b for a, b in zip(reply.reply_ids, other["ids"], strict=False)]
        agreed = same.index(False) if False in same else len(same)
        if agreed < max(len(reply.reply_ids), len(other["ids"])):
            assert gap(model, [*prompt, *reply.reply_ids[:agreed]]) < TIE
        assert np.allclose(reply.logprobs[:agreed], other["logprobs"][:agreed], atol=1e-4)
        assert agreed > 0


def served(engine, prompts):
    calls = ModelCalls()
    engine.connect(calls)
    sampling = SamplingSettings(temperature=0.0, max_reply_tokens=32)

    async def draw():
        async with calls:
            return [await engine.generate(GenerationRequest(prompt, seed=0), sampling) for prompt in prompts]

    return asyncio.run(draw())


def gap(model, ids) -> float:
    """How far the second best next token is behind the best, as log-probs."""
    with torch.inference_mode():
        best = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, -1], -1).topk(2).values
    return float(best[0] - best[1])


@pytest.mark.parametrize("policy", [True], indirect=True, ids=["tied"])
def test_a_random_model_grades_in_the_schema_with_every_string_bounded(engine):
    levels = {"C.pro": (0, 1, 2), "C.neg": (-2, -1, 0)}
    schema = {"name": "grades", "strict": True, "schema": answer_schema(levels)}
    settings = ModelSettings(model="policy", temperature=1.0, max_tokens=4 * 4 * LONGEST_TEXT)
    calls = ModelCalls({"judge": EndpointSettings(base_urls=["vllm:policy"], timeout_seconds=240)})

    async def ask():
        async with calls:
            return await chat(
                calls, "judge", settings, [Message("user", "Grade.")], seed=1,
                response_format={"type": "json_schema", "json_schema": schema},
            )  # fmt: skip

    reply = asyncio.run(ask())
    answer = json.loads(reply.text)
    assert list(answer) == list(levels)
    assert all(list(part) == ["evidence", "reasoning", "level"] for part in answer.values())
    assert all(len(part[name]) <= LONGEST_TEXT for part in answer.values() for name in ("evidence", "reasoning"))
    assert all(answer[name]["level"] in known for name, known in levels.items())
    assert read_answer(reply.text, reply.finish_reason, levels).error is None
