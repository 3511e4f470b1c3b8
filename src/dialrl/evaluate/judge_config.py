"""Settings of ``dialrl evaluate judge``. Not here: any measure."""

from typing import Any

from dialrl.config import operational, semantic
from dialrl.endpoint.settings import CallsConfig


class JudgeTrialConfig(CallsConfig):
    """Which judge is tried on what, and what it must reach (docs/benchmarks/judge.md)."""

    judge: str = semantic("rubric", help="The judge that is tried.")
    judge_options: dict[str, Any] = semantic({}, help="Options of the judge.")
    plant: bool = semantic(True, help="Have the judge grade the planted replies.")
    planted: str | None = semantic(None, help="File of planted replies; none: the shipped one.")
    environment_options: dict[str, Any] = semantic({}, help="Options of the environment support, whose cards are used.")
    repeats: int = semantic(2, ge=1, help="Times each planted reply is graded; two show the test-retest.")
    require: tuple[str, ...] = semantic(
        (), help="What the judge must reach, as 'alpha>=0.667'; none: the proposal of the page. Repeatable."
    )
    rubric: str = semantic("support", help="Rubric of the judged files.")
    sampling_seed: int = semantic(0, ge=0, help="Seed of the gradings.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of states or scenarios.")
    seed: int = semantic(0, ge=0, help="Seed of the bootstrap.")
    base_url: str | None = operational(
        None, help="Address of the judge, up to and with /v1: short for endpoints.default.base_urls."
    )
    concurrency: int = operational(64, ge=1, help="Replies graded side by side.")
    call_timeout_seconds: float = operational(120.0, gt=0, help="Time limit of one grading.")
