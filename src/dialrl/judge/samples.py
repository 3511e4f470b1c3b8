"""Several samples of one judgement, of one judge or a panel, to one verdict. Pure.

The level of an indicator is the median of the samples that answered; of an even number the lower of the two in the
middle (towards harm: a doubt does not earn). More than half of the samples must have answered, else the verdict is
missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.judge.base import Grade, GradeSample, TurnVerdict
from dialrl.judge.reading import Reading
from dialrl.scenario.message import Usage


@dataclass(frozen=True)
class Sample:
    """One answer of ``judge`` (a model's name), and what the calls behind it used."""

    judge: str
    number: int
    reading: Reading
    usage: tuple[Usage, ...] = ()


def lower_median(levels: Sequence[int]) -> int:
    """The middle level; of an even number the lower one. Examples: (0, 2, 1) -> 1; (0, 1) -> 0; (-1, -2) -> -2."""
    return sorted(levels)[(len(levels) - 1) // 2]


def combined(samples: Sequence[Sample], indicators: Sequence[str]) -> TurnVerdict:
    """The verdict of ``samples`` on ``indicators``."""
    usage = tuple(one for sample in samples for one in sample.usage)
    rows = tuple(row for sample in samples for row in _rows(sample, indicators)) if len(samples) > 1 else ()
    answered = [sample.reading for sample in samples if sample.reading.error is None]
    if 2 * len(answered) <= len(samples):
        return TurnVerdict((), "missing", _reasons(samples, len(samples) - len(answered)), rows, usage)
    by_name = [{grade.indicator: grade for grade in reading.grades} for reading in answered]
    grades = tuple(_middle([grades[name] for grades in by_name]) for name in indicators)
    is_repaired = any(reading.is_repaired for reading in answered)
    return TurnVerdict(grades, "repaired" if is_repaired else "ok", None, rows, usage)


def _middle(grades: Sequence[Grade]) -> Grade:
    """The first grade on the median level: its evidence and reasoning belong to that level."""
    level = lower_median([grade.level for grade in grades])
    return next(grade for grade in grades if grade.level == level)


def _rows(sample: Sample, indicators: Sequence[str]) -> list[GradeSample]:
    levels = {grade.indicator: grade.level for grade in sample.reading.grades}
    status = sample.reading.error or ("repaired" if sample.reading.is_repaired else "ok")
    return [
        GradeSample(sample.judge, sample.number, name, levels.get(name), status.partition(":")[0])
        for name in indicators
    ]


def _reasons(samples: Sequence[Sample], failed: int) -> str:
    reasons = [sample.reading.error for sample in samples if sample.reading.error is not None]
    return reasons[0] if len(samples) == 1 else f"{failed} of {len(samples)} samples failed: {'; '.join(reasons)}"
