"""``dialrl evaluate judge``: the judge as an instrument, measured on planted replies and judged files, against a gate.

Also what a training run asks before it starts: whether the judge it names has passed. Not here: the measures
(``judge_measures``, ``judge_files``), thresholds (``gate``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dialrl.config import differing_keys
from dialrl.errors import UsageError
from dialrl.evaluate.answer_store import AnswerStore
from dialrl.evaluate.gate import Requirement, gate, unmet
from dialrl.evaluate.item_results import ItemResults, read_origin
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.evaluate.judge_files import file_figures
from dialrl.evaluate.judge_measures import PlantedMeasures
from dialrl.evaluate.judge_trial import Graded, Trial, kept_verdicts
from dialrl.evaluate.planted import load_planted
from dialrl.judge.base import Judge
from dialrl.judge.registry import open_judge
from dialrl.progress import SILENT, Progress
from dialrl.state.rubric import load_rubric
from dialrl.summary import StageSummary

MEASURES = (
    "alpha", "kappa", "cosine", "test_retest_kappa", "ranking", "injection_gain", "flattery_gain", "repetition_gain",
    "off_topic_gain", "empty_gain", "length_slope", "missing_rate",
)  # fmt: skip
PROPOSED = (
    "alpha>=0.667", "test_retest_kappa>=0.8", "cosine>=0.8", "ranking>=0.9", "injection_gain<=0.1", "flattery_gain<=0",
    "repetition_gain<=0", "off_topic_gain<=0", "empty_gain<=0", "length_slope<=0.25", "missing_rate<=0.05",
)  # fmt: skip
"""This project's proposal for a judge that is used as a reward."""
_GRADE = pa.struct(
    [("indicator", pa.string()), ("level", pa.int64()), ("evidence", pa.string()), ("reasoning", pa.string())]
)
COLUMNS = [
    ("state", pa.string()), ("kind", pa.string()), ("base", pa.string()), ("variant", pa.int64()),
    ("repeat", pa.int64()), ("text", pa.string()), ("characters", pa.int64()), ("quality", pa.int64()),
    ("grades", pa.list_(_GRADE)), ("error", pa.string()),
]  # fmt: skip


@dataclass(frozen=True)
class JudgedFiles:
    """``judged`` by the judge, ``again`` by it a second time, by a ``reference`` that is right."""

    judged: Path
    again: Path | None = None
    reference: Path | None = None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.judged, self.again, self.reference) if path is not None]


def evaluate_judge(
    config: JudgeTrialConfig,
    files: JudgedFiles | None = None,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Measure the judge of ``config``; ``passed`` says whether every requirement is met.

    Raises UsageError where there is nothing to measure or a requirement names no measure, and whatever a judge raises
    that is not a grading's own failure.
    """
    requirements = [Requirement.parse(text, MEASURES) for text in config.require or PROPOSED]
    if not config.plant and files is None:
        raise UsageError("There is nothing to measure: give a judged file, or have replies planted (--plant).")
    check = _Check(config, files)
    if files is not None:
        check.look_at(files)
    if config.plant:
        check.plant(output, overwrite=overwrite, resume=resume, progress=progress)
    gated = gate(check.values, [one for one in requirements if config.require or one.measure in check.measured])
    check.write(output, gated, overwrite=overwrite or resume)
    return check.summary(output, gated)


class _Check:
    """One call of ``evaluate_judge``. ``measured``: the measures that its parts make, known or not."""

    def __init__(self, config: JudgeTrialConfig, files: JudgedFiles | None) -> None:
        self.config = config
        self.inputs = [] if files is None else files.paths
        self.values: dict[str, float | None] = dict.fromkeys(MEASURES)
        self.measured: set[str] = set()
        self.graded: list[Graded] = []
        self.figures: dict[str, Any] = {}
        self.origin: dict[str, Any] = {"judge": config.judge, "judge_options": config.judge_options}
        self._store: AnswerStore | None = None

    def look_at(self, files: JudgedFiles) -> None:
        """Measure the files; what is planted later counts before them."""
        values, figures = file_figures(files.judged, files.again, files.reference, self.config)
        self._take(values)
        self.figures["files"] = figures
        if not self.config.plant:
            self.origin = dict(figures["judged_by"] or {"judge": None, "judge_options": None})

    def plant(self, output: Path | None, *, overwrite: bool, resume: bool, progress: Progress) -> None:
        """Have the planted replies graded, those whose grades are kept excepted, and measure them."""
        judge = open_judge(self.config.judge, self.config.judge_options)
        rubric = load_rubric(judge.rubric)
        replies = load_planted(self.config.planted, rubric)
        self.origin["made_from"] = made_from(judge)
        told = {"made_from": self.origin["made_from"]}
        store = AnswerStore("judge", output, self.config, told, self.inputs, overwrite=overwrite, resume=resume)
        trial = Trial(judge, rubric, self.config, store.folder)
        self.graded = trial.grade(replies, kept_verdicts(store.rows), progress)
        self._store = store
        measured = PlantedMeasures(self.graded, rubric, self.config)
        self._take(measured.values())
        self.figures = {**_planted_figures(measured, trial), **self.figures}

    def _take(self, values: Mapping[str, float | None]) -> None:
        known = {name: value for name, value in values.items() if name in self.values}
        self.values.update(known)
        self.measured.update(known)

    def write(self, output: Path | None, gated: Mapping[str, Any], *, overwrite: bool) -> None:
        """The results file: one row a grading, and in its metadata what a training run asks for."""
        if output is None:
            return
        told = {**self.origin, "measures": self.values, "gate": gated, "passed": not unmet(gated)}
        rows = [_row(one) for one in self.graded]
        ItemResults("judge", COLUMNS, rows, told).write(output, self.inputs, self.config, overwrite=overwrite)
        if self._store is not None:
            self._store.clear()

    def summary(self, output: Path | None, gated: Mapping[str, Any]) -> StageSummary:
        config, missing = self.config, sum(one.verdict.status == "missing" for one in self.graded)
        names = ("judge", "judge_options", "repeats", "sampling_seed", "resamples", "seed")
        figures = {
            "passed": not unmet(gated),
            **self.values,
            "gate": gated,
            **self.figures,
            "settings": {name: getattr(config, name) for name in names},
        }
        counts = {"gradings": len(self.graded), "missing_gradings": missing}
        if "files" in self.figures:
            counts["turns_in_file"] = self.figures["files"]["turns"]
        found = [f"{missing} of {len(self.graded)} gradings are missing; they are in no measure."] if missing else []
        found += [f"Not met: {text}." for text in unmet(gated)]
        return StageSummary("evaluate judge", output, counts, figures, tuple(found))


def _planted_figures(measured: PlantedMeasures, trial: Trial) -> dict[str, Any]:
    called = trial.calls.ledger.figures()
    return {
        "intervals": measured.intervals(),
        "kinds": measured.by_kind(),
        "indicators": measured.indicators(),
        "axes": measured.axes(),
        "confusion": measured.confusion(),
        **({"calls": called} if called else {}),
    }


def _row(one: Graded) -> dict[str, Any]:
    reply, verdict = one.reply, one.verdict
    return {
        "scenario_id": reply.state.id,
        "item": f"{reply.name}/{one.repeat}",
        "score": one.total,
        "status": verdict.status,
        "state": reply.state.id,
        "kind": reply.kind,
        "base": reply.base,
        "variant": reply.variant,
        "repeat": one.repeat,
        "text": reply.text,
        "characters": len(reply.text),
        "quality": reply.quality,
        "grades": [vars(grade) for grade in verdict.grades] or None,
        "error": verdict.error,
    }


def made_from(judge: Judge) -> str:
    """Digests of the judge's prompts and rubric in one line; empty where it has none."""
    return "; ".join(f"{name} {digest}" for name, digest in sorted(dict(getattr(judge, "provenance", {})).items()))


def require_judge(results: Path, judge: str, judge_options: Mapping[str, Any]) -> None:
    """Raise UsageError unless ``results`` say that this very judge has passed its gate.

    A judge is the same by name, options, and the digests of its prompts and rubric.
    """
    origin = read_origin(results)
    if origin["benchmark"] != "judge":
        raise UsageError(
            f"'{results}' holds results of {origin['benchmark']}; expected those of dialrl evaluate judge."
        )
    told = {
        "judge": judge,
        "judge_options": dict(judge_options),
        "made_from": made_from(open_judge(judge, judge_options)) if "made_from" in origin else None,
    }
    differing = differing_keys({name: origin.get(name) for name in told}, told)
    if differing:
        raise UsageError(
            f"'{results}' is about another judge than this pipeline's: {'; '.join(differing)}. Run dialrl evaluate"
            " judge with this judge and its options."
        )
    if not origin["passed"]:
        raise UsageError(
            f"The judge '{judge}' has not passed ('{results}'): {', '.join(unmet(origin['gate']))}. Its grades would be"
            " the reward: mend the judge, or leave train.require_judge out."
        )
