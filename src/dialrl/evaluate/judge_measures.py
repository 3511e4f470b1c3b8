"""What the gradings of planted replies say of a judge: order, gains of worthless replies, length, labels, itself.

A score is the sum of the increments of all axes. What is missing is in no mean and is counted. Definitions:
docs/benchmarks/judge.md. Not here: asking (``judge_trial``), thresholds (``gate``).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from dialrl.evaluate.agreement_kappa import Kappa, known_or_none
from dialrl.evaluate.agreement_measures import IncrementAgreement, compare_increments, gwet_ac2, ordinal_alpha
from dialrl.evaluate.benchmark_config import AgreementConfig
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.evaluate.judge_trial import Graded
from dialrl.evaluate.length_slope import Slope, length_slope
from dialrl.evaluate.planted import INJECTION, PADDED, WORTHLESS, Planted
from dialrl.evaluate.statistics import mean_or_none, percentile_interval, scenario_bootstrap
from dialrl.ragged import Floats
from dialrl.state.rubric import Rubric

Levels = dict[str, tuple[int, ...]]


class PlantedMeasures:
    """The measures of one judge's gradings."""

    def __init__(self, graded: Sequence[Graded], rubric: Rubric, config: JudgeTrialConfig) -> None:
        self.graded, self.rubric, self.config = graded, rubric, config
        self.replies: dict[str, Planted] = {one.reply.name: one.reply for one in graded}
        scores: dict[str, list[float]] = {}
        for one in graded:
            if one.total is not None:
                scores.setdefault(one.reply.name, []).append(one.total)
        self.scores = {name: sum(known) / len(known) for name, known in scores.items()}
        self._by_repeat = {(one.reply.name, one.repeat): one for one in graded}
        self.levels: Levels = {part.name: tuple(sorted(n.level for n in part.levels)) for part in rubric.indicators}

    def values(self) -> dict[str, float | None]:
        """Every measure that a gate may name."""
        slope, injected = self.slope(), self.injection_gains()
        gains = {f"{kind}_gain": mean_or_none(self._of_kind(kind)) for kind in WORTHLESS}
        return {
            **self._label_agreement(),
            "test_retest_kappa": self._retest(),
            "ranking": self.ranking(),
            "injection_gain": mean_or_none([gain for _, gain in injected]),
            **gains,
            "length_slope": None if slope is None else slope.value,
            "missing_rate": self.missing / len(self.graded),
        }

    @property
    def missing(self) -> int:
        return sum(one.verdict.status == "missing" for one in self.graded)

    def intervals(self) -> dict[str, dict[str, float]]:
        """Intervals over states of the slope and of what an order to the judge gains."""
        slope, injected = self.slope(), self.injection_gains()
        found = {} if slope is None else {"length_slope": {"low": slope.low, "high": slope.high}}
        if injected:
            drawn = scenario_bootstrap(
                np.array([[gain] for _, gain in injected]),
                [reply.state.id for reply, _ in injected],
                resamples=self.config.resamples,
                seed=self.config.seed,
            )
            found["injection_gain"] = percentile_interval(drawn[:, 0], self.config.confidence).to_json()
        return found

    def ranking(self) -> float | None:
        """Share of pairs of replies of different quality to one state that stand in the right order; a tie is half."""
        found: list[float] = []
        ranked = [reply for name, reply in self.replies.items() if reply.quality is not None and name in self.scores]
        for one, two in combinations(ranked, 2):
            if one.state.id == two.state.id and one.quality != two.quality:
                better, worse = (one, two) if (one.quality or 0) > (two.quality or 0) else (two, one)
                difference = self.scores[better.name] - self.scores[worse.name]
                found.append(1.0 if difference > 0 else 0.5 if difference == 0 else 0.0)
        return mean_or_none(found)

    def injection_gains(self) -> list[tuple[Planted, float]]:
        """What each order to the judge added to the score of the reply it was put behind."""
        return [
            (reply, self.scores[name] - self.scores[_base(reply)])
            for name, reply in self.replies.items()
            if reply.kind == INJECTION and name in self.scores and _base(reply) in self.scores
        ]

    def slope(self) -> Slope | None:
        """Score by length, among a reply and its padded versions."""
        grouped = {reply.name: (reply.state.id, reply.base) for reply in self.replies.values() if reply.kind == PADDED}
        grouped |= {_base(self.replies[name]): group for name, group in grouped.items()}
        held = [name for name in grouped if name in self.scores]
        if not held:
            return None
        return length_slope(
            [len(self.replies[name].text) for name in held],
            [self.scores[name] for name in held],
            [grouped[name] for name in held],
            [self.replies[name].state.id for name in held],
            resamples=self.config.resamples,
            seed=self.config.seed,
            confidence=self.config.confidence,
        )

    def by_kind(self) -> dict[str, dict[str, Any]]:
        """Mean score, replies and missing gradings of each kind."""
        missing = Counter(one.reply.kind for one in self.graded if one.verdict.status == "missing")
        kinds = Counter(reply.kind for reply in self.replies.values())
        return {
            kind: {"score": mean_or_none(self._of_kind(kind)), "replies": kinds[kind], "missing": missing[kind]}
            for kind in kinds
        }

    def confusion(self) -> dict[str, dict[str, dict[str, int]]]:
        """By indicator and label: how often each level was given, over all gradings of labelled replies."""
        found: dict[str, dict[str, Counter[int]]] = {}
        for one in self.graded:
            for name, label in (one.reply.labels or {}).items():
                level = one.level(name)
                if level is not None:
                    found.setdefault(name, {}).setdefault(str(label), Counter())[level] += 1
        return {
            name: {
                label: {str(level): counts[level] for level in self.levels[name]}
                for label, counts in sorted(labels.items(), key=lambda entry: int(entry[0]))
            }
            for name, labels in found.items()
        }

    def _of_kind(self, kind: str) -> list[float]:
        return [score for name, score in self.scores.items() if self.replies[name].kind == kind]

    def _label_agreement(self) -> dict[str, float | None]:
        """Judge (first grading) against labels: alpha and kappa, means of the indicators; cosine of the increments."""
        by_indicator = self.indicators().values()
        compared = self._increments()
        means = {name: _mean([entry[name] for entry in by_indicator]) for name in ("alpha", "kappa")}
        return {**means, "cosine": None if compared is None else mean_or_none(compared.cosine_K.tolist())}

    @property
    def _labelled(self) -> list[Planted]:
        return [reply for reply in self.replies.values() if reply.labels is not None]

    def indicators(self) -> dict[str, dict[str, float | None]]:
        """Agreement of first gradings and labels on each indicator; AC2 for one whose levels are mostly the same."""
        pairs = {name: self._ratings(self._labelled, name) for name in self.levels}
        return {
            name: {
                "alpha": ordinal_alpha(pair, self.levels[name]),
                "kappa": self._kappa(pair, name, self._labelled),
                "ac2": gwet_ac2(pair, self.levels[name]),
            }
            for name, pair in pairs.items()
        }

    def axes(self) -> dict[str, dict[str, float | None]]:
        """Increments by axis: equal signs, mean of judge - label, standard deviation of the judge's over labels'."""
        compared = self._increments()
        if compared is None:
            return {}
        found = {
            "same_sign": compared.equal_sign_A,
            "offset": compared.offset_A,
            "spread_ratio": compared.spread_ratio_A,
        }
        return {
            axis: {name: known_or_none(float(values[place])) for name, values in found.items()}
            for place, axis in enumerate(self.rubric.axis_names)
        }

    def _increments(self) -> IncrementAgreement | None:
        """First gradings' increments beside the labels'."""
        known = [(reply, one) for reply in self._labelled if (one := self._by_repeat[reply.name, 0]).verdict.grades]
        if not known:
            return None
        names = self.rubric.indicator_names
        truth = [self.rubric.increment_from_levels(reply.labels or {}) for reply, _ in known]
        given = [self.rubric.increment_from_levels({name: one.level(name) or 0 for name in names}) for _, one in known]
        return compare_increments(np.array(truth), np.array(given))

    def _ratings(self, replies: Sequence[Planted], indicator: str) -> Floats:
        """Labels and first gradings, (2, K)."""
        labels = [(reply.labels or {}).get(indicator) for reply in replies]
        given = [self._by_repeat[reply.name, 0].level(indicator) for reply in replies]
        return np.array([labels, given], dtype=np.float64)

    def _retest(self) -> float | None:
        """Kappa of the first two gradings, mean of the indicators; None without a second."""
        if self.config.repeats < 2:
            return None
        replies = list(self.replies.values())
        kappas = []
        for name in self.levels:
            given = [[self._by_repeat[reply.name, repeat].level(name) for reply in replies] for repeat in (0, 1)]
            kappas.append(self._kappa(np.array(given, dtype=np.float64), name, replies))
        return _mean(kappas)

    def _kappa(self, rating_2K: Floats, indicator: str, replies: Sequence[Planted]) -> float | None:
        states = [reply.state.id for reply in replies]
        found = Kappa.of(rating_2K, self.levels[indicator], states, AgreementConfig(resamples=1))
        return None if found is None or np.isnan(found.value) else found.value


def _base(reply: Planted) -> str:
    """The name of the reply that this one was made from."""
    return f"{reply.state.id}/{reply.base}/{reply.base}/0"


def _mean(values: Sequence[float | None]) -> float | None:
    return mean_or_none([value for value in values if value is not None])
