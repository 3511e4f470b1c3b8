"""Cost of belief scoring (``dialrl judge --judge information-gain``) against one plain forward of the same dialogues.

    python benchmarks/belief.py [--turn-tokens 60] [--device cpu] [-o benchmarks/results/belief.json]

Two dialogues of ten turns and eleven cuts, a random Qwen3; 1, 4 and 16 answers of four tokens behind a wrapper of
twelve. Beside the packed forward: the one-by-one path. The plain forward computes the same trunks, causal, and the head
nowhere. Each figure is the best of ``--repeats``; ``places`` are tokens computed, relative to the trunk.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.model.belief.forward import one_by_one, packed_beliefs
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, build_tree

VOCABULARY, TURNS, DIALOGUES = 2000, 10, 2
WRAPPER_TOKENS, ANSWER_TOKENS = 12, 4


def build_model(device: str) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
    )
    return Qwen3ForCausalLM(config).eval().to(device)


def tasks_of(turn_tokens: int, aliases: int) -> list[BeliefTask]:
    draws = np.random.default_rng(0)
    wrapper = tuple(int(token) for token in draws.integers(0, VOCABULARY, WRAPPER_TOKENS))
    answers = tuple(
        GoldAlias(str(n), wrapper, tuple(int(token) for token in draws.integers(0, VOCABULARY, ANSWER_TOKENS)))
        for n in range(aliases)
    )
    length = TURNS * turn_tokens
    cuts = (turn_tokens // 4, *range(turn_tokens, length + 1, turn_tokens))
    return [BeliefTask(draws.integers(0, VOCABULARY, length), cuts, answers) for _ in range(DIALOGUES)]


def plain(model: Any, tasks: Sequence[BeliefTask]) -> None:
    """One causal forward a dialogue."""
    with torch.no_grad():
        for task in tasks:
            model.get_decoder()(
                input_ids=torch.from_numpy(task.trunk_ids).unsqueeze(0).to(model.device), use_cache=False
            )


def seconds(model: Any, work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compared(model: Any, turn_tokens: int, aliases: int, repeats: int) -> dict[str, float]:
    tasks = tasks_of(turn_tokens, aliases)
    longest = max(build_tree(task).tokens for task in tasks)
    work = {
        "plain": lambda: plain(model, tasks),
        "packed": lambda: packed_beliefs(model, tasks, token_budget=longest),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, run in work.items():
            best[name] = min(best[name], seconds(model, run))
    anew = seconds(model, lambda: one_by_one(model, tasks[:1])) * DIALOGUES
    return {
        "aliases": aliases,
        "places": round(longest / len(tasks[0].trunk_ids), 3),
        "packed_over_plain": round(best["packed"] / best["plain"], 2),
        "one_by_one_over_plain": round(anew / best["plain"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turn-tokens", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = build_model(arguments.device)
    result = {
        "benchmark": "belief",
        "dialogues": DIALOGUES,
        "turns": TURNS,
        "turn_tokens": arguments.turn_tokens,
        "device": arguments.device,
        "threads": arguments.threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        "cost": [compared(model, arguments.turn_tokens, aliases, arguments.repeats) for aliases in (1, 4, 16)],
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
