"""``dialrl evaluate agreement``: how far judges agree on the same dialogues, and one judge with itself.

Every figure stands beside the number of turns behind it; what is missing stays missing. The gate says whether a judge
agrees enough to be used as a reward. Not here: the measures (``agreement_measures``), the files (``agreement_files``).
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.errors import UsageError
from dialrl.evaluate.agreement_files import JudgedFile, SideBySide, side_by_side
from dialrl.evaluate.agreement_kappa import Kappa, Retest, ends, indicator_levels, known_or_none
from dialrl.evaluate.agreement_measures import IncrementAgreement, compare_increments, gwet_ac2, ordinal_alpha
from dialrl.evaluate.benchmark_config import AgreementConfig
from dialrl.evaluate.naming import short_names
from dialrl.evaluate.statistics import mean_or_none, scenario_bootstrap
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Floats
from dialrl.state.rubric import Rubric, load_rubric
from dialrl.summary import StageSummary


def evaluate_agreement(
    inputs: Sequence[Path], config: AgreementConfig | None = None, *, progress: Progress = SILENT
) -> StageSummary:
    """Compare the grades of ``inputs``, or of one file the samples behind its verdicts.

    Raises InputError for files on different dialogues or levels that the rubric does not have, UsageError for one file
    without several samples, MissingExtraError without the extra ``stats``.
    """
    config = config or AgreementConfig()
    if not inputs:
        raise UsageError("Give the files to compare: the same dialogues graded by several judges, or twice.")
    rubric = load_rubric(config.rubric)
    progress.start("evaluate agreement", len(inputs), "files")
    files = []
    for name, path in short_names(inputs).items():
        files.append(JudgedFile.open(path, name))
        progress.advance()
    retest = Retest(files, rubric, config)
    if len(files) > 1:
        return _Comparison(side_by_side(files), retest, rubric, config).summary()
    if not retest.figures:
        raise UsageError(
            f"'{inputs[0]}' has one judgement a turn. Give a second file with the same dialogues graded again, or one"
            " judged with several samples."
        )
    figures = {"test_retest": retest.figures, "gate": _gate({"test_retest_kappa": retest.mean}, config)}
    return StageSummary("evaluate agreement", None, {"turns": len(files[0].rows)}, figures | _settings(config))


class _Comparison:
    """Several files side by side."""

    def __init__(self, shared: SideBySide, retest: Retest, rubric: Rubric, config: AgreementConfig) -> None:
        self.shared, self.retest, self.rubric, self.config = shared, retest, rubric, config
        self.levels = {name: indicator_levels(rubric, name, rating_RK) for name, rating_RK in shared.level_FK.items()}
        self.pairs = list(combinations(range(len(shared.files)), 2))
        self.kappas = {
            (pair, name): Kappa.of(rating_RK[list(pair)], self.levels[name], shared.scenarios, config)
            for pair in self.pairs
            for name, rating_RK in shared.level_FK.items()
        }
        for pair in self.pairs:
            if self._same_judge(pair):
                for name in shared.level_FK:
                    retest.add(f"{self._named(pair)}, {name}", self.kappas[pair, name], config)

    def summary(self) -> StageSummary:
        indicators = {name: self._indicator(name) for name in self.shared.level_FK}
        vectors = {pair: self._vectors(pair) for pair in self.pairs}
        pairs = {self._named(pair): self._pair(pair, vectors[pair]) for pair in self.pairs}
        means = {
            key: mean_or_none([entry[key] for entry in indicators.values() if entry[key] is not None])
            for key in ("alpha", "kappa", "ac2")
        }
        cosine = mean_or_none([entry["cosine"] for entry in pairs.values() if entry["cosine"] is not None])
        checked = {"alpha": means["alpha"], "cosine": cosine, "test_retest_kappa": self.retest.mean}
        figures = {
            **means,
            "cosine": cosine,
            "indicators": indicators,
            "pairs": pairs,
            "axes": {self._named(pair): self._axes(found) for pair, found in vectors.items() if found is not None},
            "test_retest": self.retest.figures,
            "gate": _gate(checked, self.config),
            **_settings(self.config),
        }
        return StageSummary("evaluate agreement", None, self.shared.counts, figures, self._warnings())

    def _same_judge(self, pair: tuple[int, int]) -> bool:
        first, second = (self.shared.files[place].judge for place in pair)
        return first is not None and first == second

    def _named(self, pair: tuple[int, int]) -> str:
        return " | ".join(self.shared.files[place].name for place in pair)

    def _indicator(self, name: str) -> dict[str, Any]:
        rating_RK, levels = self.shared.level_FK[name], self.levels[name]
        kappas = [kappa for pair in self.pairs if (kappa := self.kappas[pair, name]) is not None]
        known = [kappa for kappa in kappas if not np.isnan(kappa.value)]
        drawn = np.mean([kappa.drawn_B for kappa in known], axis=0) if known else np.full(1, np.nan)
        number_K = (~np.isnan(rating_RK)).sum(axis=0)
        return {
            "alpha": ordinal_alpha(rating_RK, levels),
            "ac2": gwet_ac2(rating_RK, levels),
            "kappa": mean_or_none([kappa.value for kappa in known]),
            **ends(drawn, self.config),
            "same_level": _same_level(rating_RK),
            "turns": int((number_K >= 2).sum()),
        }

    def _vectors(self, pair: tuple[int, int]) -> IncrementAgreement | None:
        increments = self.shared.increment_FKA
        return None if increments is None else compare_increments(increments[pair[0]], increments[pair[1]])

    def _pair(self, pair: tuple[int, int], found: IncrementAgreement | None) -> dict[str, Any]:
        kappas = [kappa.value for name in self.shared.level_FK if (kappa := self.kappas[pair, name]) is not None]
        cosine = np.full(1, np.nan)
        if found is not None and len(found.cosine_K):
            held = [scenario for scenario, moving in zip(self.shared.scenarios, found.moving_K, strict=True) if moving]
            cosine = scenario_bootstrap(
                found.cosine_K[:, None], held, resamples=self.config.resamples, seed=self.config.seed
            )[:, 0]
        return {
            "kappa": mean_or_none([value for value in kappas if not np.isnan(value)]),
            "cosine": None if found is None or not len(found.cosine_K) else float(found.cosine_K.mean()),
            **ends(cosine, self.config),
            "turns_with_cosine": 0 if found is None else len(found.cosine_K),
            "zero_in_one": None if found is None else found.zero_in_one,
            "zero_in_both": None if found is None else found.zero_in_both,
            "turns": 0 if found is None else found.turns,
            "same_judge": self._same_judge(pair),
        }

    def _axes(self, found: IncrementAgreement) -> dict[str, dict[str, float | None]]:
        names = self.rubric.axis_names
        if len(names) != len(found.offset_A):
            names = tuple(f"axis {place}" for place in range(len(found.offset_A)))
        columns = {"same_sign": found.equal_sign_A, "offset": found.offset_A, "spread_ratio": found.spread_ratio_A}
        return {
            name: {column: known_or_none(float(values[place])) for column, values in columns.items()}
            for place, name in enumerate(names)
        }

    def _warnings(self) -> tuple[str, ...]:
        counts, found = self.shared.counts, []
        if counts["turns_in_one_file_only"]:
            found.append(
                f"{counts['turns_in_one_file_only']} turns stand in one file only and are compared with nothing."
            )
        if counts["missing_judgements"]:
            found.append(f"{counts['missing_judgements']} judgements are missing; they are in no measure.")
        undefined = sorted({name for (_, name), kappa in self.kappas.items() if kappa and np.isnan(kappa.value)})
        if undefined:
            found.append(
                f"Kappa of {', '.join(undefined)} is not defined: one level throughout. See same_level and AC2."
            )
        return tuple(found)


def _same_level(rating_RK: Floats) -> float | None:
    """Share of the pairs of ratings of a unit that are equal, over units with two or more."""
    pairs = [(one, two) for one, two in combinations(rating_RK, 2)]
    known = [~np.isnan(one) & ~np.isnan(two) for one, two in pairs]
    number = sum(int(both.sum()) for both in known)
    equal = sum(int((one[both] == two[both]).sum()) for (one, two), both in zip(pairs, known, strict=True))
    return equal / number if number else None


def _gate(values: Mapping[str, float | None], config: AgreementConfig) -> dict[str, dict[str, Any]]:
    """Mean values against their thresholds; ``met`` is None where a value is not known."""
    least = {
        "alpha": config.min_alpha,
        "cosine": config.min_cosine,
        "test_retest_kappa": config.min_kappa,
    }
    return {
        name: {"value": value, "least": least[name], "met": None if value is None else value >= least[name]}
        for name, value in values.items()
    }


def _settings(config: AgreementConfig) -> dict[str, Any]:
    return {"settings": {name: getattr(config, name) for name in ("rubric", "confidence", "resamples", "seed")}}
