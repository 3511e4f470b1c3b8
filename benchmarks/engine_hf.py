"""Speed of the embedded engine: against ``model.generate`` over one turn, and against prefilling anew over eight.

    python benchmarks/engine_hf.py [--rows 64] [--turns 8] [--threads 1] [-o benchmarks/engine_hf.json]

A random Qwen3 of the demo policy's size (3 layers, 96 wide, 500 tokens). Both sides draw from the same prompts in one
process, alternating, once with replies of equal length and once with replies that stop by themselves; each figure is
tokens a second, the best of ``--repeats``.
"""

import argparse
import platform
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from result_file import show
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.engine.hf import HfEngine

VOCABULARY = 500
REPLY_TOKENS = 24
MESSAGE_TOKENS = 24
STOPS = tuple(range(1, 41))  # of 500 nearly equal tokens: a reply of random weights has about 11 tokens


def build_model() -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=4096,
    )
    return Qwen3ForCausalLM(config).eval()


def random_ids(source: random.Random, count: int) -> list[int]:
    return [source.randrange(1, VOCABULARY) for _ in range(count)]


def prompts_of(rows: int) -> list[list[int]]:
    source = random.Random(0)
    return [random_ids(source, source.randint(30, 50)) for _ in range(rows)]


def one_turn_engine(model: Any, rows: int, stops: Sequence[int] = ()) -> int:
    engine = HfEngine(model, stop_ids=stops)
    requests = [GenerationRequest(ids, seed=row, dialogue=str(row)) for row, ids in enumerate(prompts_of(rows))]
    replies = engine.generate_block(requests, SamplingSettings(max_reply_tokens=REPLY_TOKENS))
    return sum(len(reply.reply_ids) for reply in replies)


def one_turn_generate(model: Any, rows: int, stops: Sequence[int] = ()) -> int:
    prompts = prompts_of(rows)
    width = max(len(ids) for ids in prompts)
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=REPLY_TOKENS,
            min_new_tokens=None if stops else REPLY_TOKENS,
            eos_token_id=list(stops) or None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    drawn = output.sequences[:, width:]
    stopped = torch.isin(drawn, torch.tensor(list(stops), dtype=drawn.dtype)).long()
    return int((stopped.cumsum(-1) - stopped == 0).sum())


def dialogue(model: Any, rows: int, turns: int, *, reuse: bool) -> int:
    """Tokens drawn over a dialogue; without ``reuse`` each turn is a dialogue of its own to the engine."""
    engine = HfEngine(model, stop_ids=[])
    source = random.Random(1)
    contexts = prompts_of(rows)
    tokens = 0
    for turn in range(turns):
        names = [f"{row}" if reuse else f"{row}/{turn}" for row in range(rows)]
        requests = [
            GenerationRequest(ids, seed=turn * rows + row, dialogue=name)
            for row, (ids, name) in enumerate(zip(contexts, names, strict=True))
        ]
        replies = engine.generate_block(requests, SamplingSettings(max_reply_tokens=REPLY_TOKENS))
        for ids, reply in zip(contexts, replies, strict=True):
            ids.extend(reply.reply_ids + random_ids(source, MESSAGE_TOKENS))
            tokens += len(reply.reply_ids)
    return tokens


def measured(work: dict[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Tokens a second by name, best of ``repeats``, the kinds of work taking turns."""
    best = dict.fromkeys(work, 0.0)
    for _ in range(repeats):
        for name, run in work.items():
            start = time.perf_counter()
            tokens = run()
            best[name] = max(best[name], tokens / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, rows, turns = build_model(), arguments.rows, arguments.turns
    speeds = measured(
        {
            "one_turn_engine": lambda: one_turn_engine(model, rows),
            "one_turn_generate": lambda: one_turn_generate(model, rows),
            "stopping_engine": lambda: one_turn_engine(model, rows, STOPS),
            "stopping_generate": lambda: one_turn_generate(model, rows, STOPS),
            "dialogue_reused_prefix": lambda: dialogue(model, rows, turns, reuse=True),
            "dialogue_prefilled_anew": lambda: dialogue(model, rows, turns, reuse=False),
        },
        arguments.repeats,
    )
    result = {
        "benchmark": "engine_hf",
        "rows": rows,
        "turns": turns,
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        "tokens_per_second": {name: round(speed) for name, speed in speeds.items()},
        "ratio_to_generate": round(speeds["one_turn_engine"] / speeds["one_turn_generate"], 2),
        "ratio_to_generate_with_stops": round(speeds["stopping_engine"] / speeds["stopping_generate"], 2),
        "ratio_to_prefilling_anew": round(speeds["dialogue_reused_prefix"] / speeds["dialogue_prefilled_anew"], 2),
    }
    show(result, arguments.output)


if __name__ == "__main__":
    main()
