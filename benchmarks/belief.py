"""Cost of belief scoring (``dialrl judge --judge information-gain``) against one plain forward of the same dialogues.

    python benchmarks/belief.py [--case search short] [--aliases 1 4 16] [-o benchmarks/results/belief.json]

Dialogues of ten turns with eleven cuts under a random Qwen3, two cases: ``search``, the paper's domain (a question, ten
times a thought with its call and a tool's answer of several hundred tokens, a wrapper as long as the built-in one), and
``short``, ten turns of 60 tokens, in which the branches weigh much. Beside the packed forward: the dense mask over the
whole row, and the one-by-one path (once, on one dialogue). The plain forward computes the same trunks, causal, one
dialogue at a time, and the head nowhere. Ratios are of neighbouring runs: median, least and greatest of ``--repeats``;
``tokens`` is what is computed relative to the trunks, below which no ratio can fall.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from result_file import show
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.model.belief.forward import one_by_one, packed_beliefs
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, build_tree

VOCABULARY, TURNS, DIALOGUES = 2000, 10, 2


@dataclass(frozen=True)
class Case:
    """Tokens of one dialogue's parts. ``tool_tokens`` holds the chat template's headers too."""

    question_tokens: int
    reply_tokens: int
    tool_tokens: int
    wrapper_tokens: int
    answer_tokens: int = 4


CASES = {
    "search": Case(question_tokens=80, reply_tokens=80, tool_tokens=400, wrapper_tokens=18),
    "short": Case(question_tokens=15, reply_tokens=45, tool_tokens=15, wrapper_tokens=12),
}


def build_model(device: str) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
    )
    return Qwen3ForCausalLM(config).eval().to(device)


def tasks_of(case: Case, aliases: int) -> list[BeliefTask]:
    draws = np.random.default_rng(0)
    wrapper = tuple(int(token) for token in draws.integers(0, VOCABULARY, case.wrapper_tokens))
    answers = tuple(
        GoldAlias(str(n), wrapper, tuple(int(token) for token in draws.integers(0, VOCABULARY, case.answer_tokens)))
        for n in range(aliases)
    )
    turn = case.reply_tokens + case.tool_tokens
    cuts = tuple(case.question_tokens + number * turn for number in range(TURNS + 1))
    return [BeliefTask(draws.integers(0, VOCABULARY, cuts[-1]), cuts, answers) for _ in range(DIALOGUES)]


def plain(model: Any, tasks: Sequence[BeliefTask]) -> None:
    """One causal forward a dialogue."""
    with torch.no_grad():
        for task in tasks:
            ids = torch.from_numpy(task.trunk_ids).unsqueeze(0).to(model.device)
            model.get_decoder()(input_ids=ids, use_cache=False)


def seconds(model: Any, work: Callable[[], Any]) -> float:
    """Processor seconds on a CPU, which others on the machine disturb less; on a GPU seconds of the clock."""
    clock = time.process_time if model.device.type == "cpu" else time.perf_counter
    start = clock()
    work()
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def compared(model: Any, case: Case, aliases: int, repeats: int) -> dict[str, Any]:
    tasks = tasks_of(case, aliases)
    tokens = sum(build_tree(task).tokens for task in tasks)
    work: dict[str, Callable[[], Any]] = {
        "packed": lambda: packed_beliefs(model, tasks),
        "dense": lambda: packed_beliefs(model, tasks, attention="dense"),
    }
    spent: dict[str, list[float]] = {name: [] for name in ("plain", *work)}
    for _ in range(repeats + 1):
        spent["plain"].append(seconds(model, lambda: plain(model, tasks)))
        for name, run in work.items():
            spent[name].append(seconds(model, run))
    found = {name: [t / p for t, p in zip(spent[name][1:], spent["plain"][1:], strict=True)] for name in work}
    anew = seconds(model, lambda: one_by_one(model, tasks[:1])) * DIALOGUES
    plain_seconds = statistics.median(spent["plain"][1:])
    return {
        "aliases": aliases,
        "tokens": round(tokens / sum(len(task.trunk_ids) for task in tasks), 3),
        "packed_over_plain": spread(found["packed"]),
        "dense_over_plain": spread(found["dense"]),
        "one_by_one_over_plain": round(anew / plain_seconds, 1),
        "plain_seconds": round(plain_seconds, 3),
    }


def spread(ratios: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "greatest": round(max(ratios), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--aliases", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = build_model(arguments.device)
    cases = []
    for name in arguments.case:
        cost = []
        for aliases in arguments.aliases:
            cost.append(compared(model, CASES[name], aliases, arguments.repeats))
            print(name, cost[-1], file=sys.stderr, flush=True)
        cases.append({"case": name, **asdict(CASES[name]), "cost": cost})
    result = {
        "benchmark": "belief",
        "dialogues": DIALOGUES,
        "turns": TURNS,
        "repeats": arguments.repeats,
        "parameters": model.num_parameters(),
        "device": arguments.device,
        "threads": arguments.threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        "cases": cases,
    }
    show(result, arguments.output)


if __name__ == "__main__":
    main()
