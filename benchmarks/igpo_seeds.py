"""IGPO against outcome-only GRPO in the search world: equal rollouts and updates, several seeds, F1 by hops.

    python benchmarks/igpo_seeds.py [--seeds 5] [--pipelines igpo-demo igpo-demo-grpo] [-o runs/igpo-seeds]
        [--results benchmarks/results/igpo_seeds.json]

Trains every pipeline with every seed by ``dialrl train`` (minutes each; a killed command goes on where it was), and
compares the final policies on the held-out questions with an oracle that makes every search (F1 100). The seed goes to
every part that draws; all evaluations draw alike. Intervals (95 %) are percentiles of a bootstrap that draws seeds and,
within hops, questions; differences are paired by seed and question. ``--report`` reads what is there.
"""

import argparse
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from result_file import show

from dialrl.evaluate.qa_answers import load_answers
from dialrl.resources import resource
from dialrl.scenario.answers import best_over, word_set_f1
from dialrl.scenario.questions import Question, load_questions
from dialrl.train.config import PipelineConfig, read_pipeline
from dialrl.train.loop import train

Floats = npt.NDArray[np.float64]
PIPELINES = ("igpo-demo", "igpo-demo-grpo")
HOPS = ("one-hop", "two-hop", "three-hop")
GROUPS = {**{hop: (hop,) for hop in HOPS}, "one- and two-hop": HOPS[:2], "all": HOPS}
RESAMPLES = 10_000


def pipeline_of(name: str, seed: int) -> PipelineConfig:
    """The shipped pipeline under another seed."""
    seeds = {section: {"seed": seed} for section in ("rollout", "judge", "update")}
    return read_pipeline(resource(f"{name}.yaml", kind="pipelines"), seeds)


def trained(folder: Path, name: str, seed: int, *, report: bool) -> Path:
    """The run directory, finished."""
    run = folder / f"{name}-seed{seed}"
    if not report:
        print(f"{name}, seed {seed}: {run}", file=sys.stderr, flush=True)
        train(pipeline_of(name, seed), run, resume=run.exists())
    return run


def f1_by_question(answers: Path, questions: Sequence[Question]) -> Floats:
    """Word-set F1 (Q,), 0 to 100; a question without an answer counts 0."""
    by_id = {question.id: question for question in questions}
    worth: dict[str, list[float]] = defaultdict(list)
    for answer in load_answers(answers):
        worth[answer.id].append(100.0 * best_over(word_set_f1, answer.text or "", by_id[answer.id].answers))
    return np.array([np.mean(worth[question.id]) if worth[question.id] else 0.0 for question in questions])


def evaluated(run: Path) -> list[tuple[int, Path]]:
    """(iterations done, dialogues) of each evaluation of a run."""
    found = [(0, run / "base" / "evaluation" / "rollout.parquet")]
    for place in sorted(run.glob("[0-9]*")):
        found.append((int(place.name) + 1, place / "evaluation" / "rollout.parquet"))
    return [(number, place) for number, place in found if place.is_file()]


def drawn_means(value_SQ: Floats, groups: Sequence[npt.NDArray[np.int64]], seed: int = 0) -> Floats:
    """Bootstrap means (B,): seeds are drawn, and questions within each of ``groups``."""
    draws = np.random.default_rng(seed)
    found = []
    for _ in range(RESAMPLES):
        rows = draws.integers(0, len(value_SQ), len(value_SQ))
        columns = np.concatenate([draws.choice(group, len(group)) for group in groups])
        found.append(value_SQ[np.ix_(rows, columns)].mean())
    return np.array(found)


def cell(value_SQ: Floats, groups: Sequence[npt.NDArray[np.int64]]) -> dict[str, Any]:
    """Mean, interval and the seeds' own means."""
    low, high = np.percentile(drawn_means(value_SQ, groups), [2.5, 97.5])
    chosen_SQ = value_SQ[:, np.concatenate(groups)]
    return {
        "mean": round(float(chosen_SQ.mean()), 1),
        "low": round(float(low), 1),
        "high": round(float(high), 1),
        "seeds": [round(float(value), 1) for value in chosen_SQ.mean(axis=1)],
    }


def table(value_SQ: Floats, questions: Sequence[Question]) -> dict[str, Any]:
    """A cell for each hop, for one and two together, and for all."""
    places = {hop: np.flatnonzero([question.source == hop for question in questions]) for hop in HOPS}
    return {name: cell(value_SQ, [places[hop] for hop in hops]) for name, hops in GROUPS.items()}


def compared(folder: Path, pipelines: Sequence[str], seeds: int, *, report: bool) -> dict[str, Any]:
    questions = [q for q in load_questions(resource("search-world/questions.jsonl")) if q.split == "test"]
    base: list[Floats] = []
    final: dict[str, list[Floats]] = defaultdict(list)
    curves: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(seeds):
        for name in pipelines:
            points = evaluated(trained(folder, name, seed, report=report))
            values = [(number, f1_by_question(place, questions)) for number, place in points]
            for number, value_Q in values:
                curves[name][number].append(float(value_Q.mean()))
            if name == pipelines[0]:  # all start from one policy
                base.append(values[0][1])
            final[name].append(values[-1][1])
    stacked = {name: np.stack(values) for name, values in final.items()}
    first, *others = pipelines
    return {
        "base": table(np.stack(base), questions),
        **{name: table(value_SQ, questions) for name, value_SQ in stacked.items()},
        **{f"{first} less {other}": table(stacked[first] - stacked[other], questions) for other in others},
        "curves": {
            name: {str(number): round(float(np.mean(held)), 1) for number, held in sorted(curve.items())}
            for name, curve in curves.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", nargs="+", default=list(PIPELINES), help="Shipped ones; the first against each.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/igpo-seeds"))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    result = {
        "benchmark": "igpo_seeds",
        "seeds": arguments.seeds,
        "oracle": 100.0,
        "measure": "word-set F1 on held-out questions",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
        **compared(arguments.output, arguments.pipelines, arguments.seeds, report=arguments.report),
    }
    show(result, arguments.results)


if __name__ == "__main__":
    main()
