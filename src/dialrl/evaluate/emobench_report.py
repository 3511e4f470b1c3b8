"""What ``dialrl evaluate emobench`` prints and writes: accuracy beside chance and beside constant answers.

Not here: files, votes (``emobench_score``).
"""

from collections.abc import Callable, Sequence
from math import fsum
from typing import Any

import numpy as np

from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench_answers import Items
from dialrl.evaluate.emobench_score import Answered, best_constant_answer
from dialrl.evaluate.statistics import percentile_interval, scenario_bootstrap

Cell = tuple[str, str]


class Report:
    """Figures, counts and rows of the answers in hand; ``votes`` is the scoring of 2024."""

    def __init__(self, answered: Sequence[Answered], items: Items, config: EmoBenchConfig, *, votes: bool) -> None:
        self.answered, self.items, self.config, self.votes = answered, items, config, votes
        self.cells: dict[Cell, list[Answered]] = {}
        for one in answered:
            self.cells.setdefault(one.cell, []).append(one)

    def score(self, one: Answered) -> float:
        return 100.0 * one.score(votes=self.votes)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "scenario_id": f"{one.task}/{one.qid}",  # the languages share an item
                "item": f"{one.task}/{one.language}/{one.qid}",
                "score": self.score(one),
                "status": "scored" if one.is_parsed else "unparsed",
                "task": one.task,
                "language": one.language,
                "qid": one.qid,
                "category": one.category,
                "subcategory": one.subcategory,
                "chance": 100.0 * one.chance,
                "shuffled_score": _percent(one.shuffled(votes=self.votes)),
            }
            for one in self.answered
        ]

    def figures(self, scoring: str) -> dict[str, Any]:
        by_cell = {_name(cell): self._cell(held) for cell, held in self.cells.items()}
        several = len(by_cell) > 1
        answers = [places for one in self.answered for places in one.answers]
        return {
            "score": _mean([cell["score"] for cell in by_cell.values()]),
            "score_is": "mean of the tasks and languages, a convenience"
            if several
            else f"accuracy, {next(iter(by_cell))}",
            "parse_rate": sum(None not in places for places in answers) / len(answers),
            "results": by_cell,
            "by_order": {_name(cell): self._orders(held) for cell, held in self.cells.items()},
            "categories": {_name(cell): _by_category(held, self.score) for cell, held in self.cells.items()},
            "always_the_same_letters": self._constant_answers(),
            "settings": {
                "scoring": scoring,
                "order": "mean of the orders" if self.votes else "as shipped, where answers in that order are there",
                "shuffle_seed": self.config.shuffle_seed,
                "limit": self.config.limit,
                "resamples": self.config.resamples,
                "seed": self.config.seed,
            },
        }

    def _cell(self, held: Sequence[Answered]) -> dict[str, Any]:
        scores = [self.score(one) for one in held]
        drawn = scenario_bootstrap(
            np.array(scores)[:, None], [one.qid for one in held], resamples=self.config.resamples, seed=self.config.seed
        )
        interval = percentile_interval(drawn[:, 0], self.config.confidence)
        shuffled = [share for one in held if (share := one.shuffled(votes=self.votes)) is not None]
        return {
            "score": _mean(scores),
            "low": interval.low,
            "high": interval.high,
            "chance": 100.0 * _mean([one.chance for one in held]),
            "shuffled": 100.0 * _mean(shuffled) if shuffled else None,
            "items": len(held),
            "unparsed": sum(not one.is_parsed for one in held),
        }

    def _orders(self, held: Sequence[Answered]) -> dict[str, float]:
        """Accuracy in each order, over the items answered in it; order 0 is the shipped one."""
        shares: dict[int, list[float]] = {}
        for one in held:
            for number, share in one.by_order(votes=self.votes).items():
                shares.setdefault(number, []).append(share)
        return {
            "shipped" if number == 0 else f"order {number}": 100.0 * _mean(found)
            for number, found in sorted(shares.items())
        }

    def _constant_answers(self) -> dict[str, dict[str, Any]]:
        """What the best constant answer earns on all items of each task and language, in the shipped order."""
        found = {}
        for task, language in self.cells:
            held = [item for item in self.items.values() if (item.task, item.language) == (task, language)]
            if held:
                letters, share = best_constant_answer(held)
                found[_name((task, language))] = {"letters": letters, "score": 100.0 * share, "items": len(held)}
        return found

    def counts(self) -> dict[str, int]:
        return {
            "items": len(self.answered),
            "answers": sum(len(one.answers) for one in self.answered),
            "unparsed_answers": sum(None in places for one in self.answered for places in one.answers),
            "unparsed_items": sum(not one.is_parsed for one in self.answered),
            "unanswered_items": self._unanswered(),
        }

    def _unanswered(self) -> int:
        """Items of the tasks and languages in hand that have no answer at all; a limit leaves none out."""
        asked = [item for item in self.items.values() if (item.task, item.language) in self.cells]
        return 0 if self.config.limit is not None or not asked else len(asked) - len(self.answered)

    def warnings(self) -> tuple[str, ...]:
        counts = self.counts()
        found = []
        if counts["unparsed_items"]:
            found.append(f"{counts['unparsed_items']} items have no parsed answer; they count as wrong.")
        if counts["unanswered_items"]:
            found.append(
                f"{counts['unanswered_items']} items have no answer in the file; they are left out of every mean."
            )
        if self.config.limit is not None:
            found.append(f"Only {counts['items']} items were scored: this is no EmoBench score.")
        return tuple(found)


def _by_category(held: Sequence[Answered], score: Callable[[Answered], float]) -> dict[str, dict[str, Any]]:
    categories: dict[str, list[float]] = {}
    for one in held:
        if one.category is not None:
            categories.setdefault(one.category, []).append(score(one))
    return {name: {"score": _mean(scores), "items": len(scores)} for name, scores in sorted(categories.items())}


def _name(cell: Cell) -> str:
    return " ".join(cell)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
