"""``dialrl doctor``: every check, cheapest first; one function for the command line and for a notebook."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dialrl.config import assign
from dialrl.doctor.check import Check, Diagnosis
from dialrl.doctor.endpoints import endpoints
from dialrl.doctor.hardware import hardware
from dialrl.doctor.parts import installed_parts
from dialrl.doctor.software import installed, software
from dialrl.doctor.subject import Subject
from dialrl.engine import engine_factory
from dialrl.errors import DialrlError
from dialrl.progress import SILENT, Progress

_NEEDS_TRAIN = "pip install 'dialrl[train]'"


def examine(subject: Subject, progress: Progress = SILENT) -> Diagnosis:
    """All checks on ``subject``. Raises nothing for what it finds: a fault is a finding."""
    areas: list[Callable[[], Iterable[Check]]] = [
        lambda: software(subject),
        installed_parts,
        lambda: hardware(subject),
        lambda: _pipeline(subject),
        lambda: endpoints(subject),
        lambda: _policy(subject),
    ]
    progress.start("doctor", len(areas), "areas")
    checks: list[Check] = []
    for area in areas:
        checks += area()
        progress.advance()
    return Diagnosis(tuple(checks))


def subject_of(
    config: Path | None = None,
    policy: str | None = None,
    endpoints: Iterable[str] = (),
    model: str | None = None,
    output: Path | None = None,
    *,
    weights: bool = True,
    engine: str | None = None,
    template_options: Iterable[str] = (),
) -> Subject:
    """What to examine, from what a user names; ``template_options``: ``NAME=VALUE``, the value as YAML.

    Raises UsageError for a pipeline that cannot be read, or an engine that there is none of.
    """
    from dialrl.train.config import read_pipeline

    pipeline = None if config is None else read_pipeline(config)
    if engine is not None:
        engine_factory(engine)
    options: dict[str, Any] = {}
    for assignment in template_options:
        assign(options, assignment)
    return Subject(pipeline, policy, tuple(endpoints), model, output or Path(), weights, engine, options)


def _pipeline(subject: Subject) -> list[Check]:
    """Whether the pipeline's names and settings can work together."""
    if subject.pipeline is None:
        return []
    from dialrl.train.check import check_pipeline, warnings_of
    from dialrl.train.machine import check_machine

    try:
        check_pipeline(subject.pipeline)
    except DialrlError as error:
        return [Check("Pipeline", "settings", "failed", str(error))]
    checks = [Check("Pipeline", "sense", "warning", line) for line in warnings_of(subject.pipeline)]
    try:
        check_machine(subject.pipeline)
    except DialrlError as error:
        checks.append(Check("Pipeline", "devices", "failed", str(error)))
    rollout, advantage = subject.pipeline.rollout, subject.pipeline.advantage
    judge = rollout.judge if rollout.grading == "live" else subject.pipeline.judge.judge
    found = (
        f"environment {rollout.environment}, judge {judge}, preset {advantage.estimator}, engine {rollout.engine},"
        f" {rollout.groups} x {rollout.samples} dialogues an iteration"
    )
    return [Check("Pipeline", "settings", "ok", found), *checks]


def _policy(subject: Subject) -> list[Check]:
    from dialrl.doctor.policy import find

    found = find(subject)
    checks = list(found.checks)
    if found.directory is None:
        return checks
    if installed("torch") is None or installed("transformers") is None:
        missing = "torch and transformers are not installed"
        return [*checks, Check("Template", "template", "failed", f"not looked at: {missing}", _NEEDS_TRAIN)]
    from dialrl.doctor.template import examine_template

    seen, template = examine_template(subject, found.directory)
    checks += seen
    if template is None:
        return checks
    from dialrl.doctor.sampling import examine_sampling

    return [*checks, *examine_sampling(subject, found)]
