"""Configurations of the benchmarks, whether they score stored answers or ask a model, and of agreement.

Not here: any score.
"""

from typing import Any, Literal

from pydantic import field_validator

from dialrl.config import StageConfig, semantic
from dialrl.evaluate.asking_config import AskingConfig


class _Benchmark(AskingConfig):
    limit: int | None = semantic(None, ge=1, help="Take the first N items only; none: all.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of items.")
    seed: int = semantic(0, ge=0, help="Seed of the bootstrap.")


class EqBenchConfig(_Benchmark):
    """How stored EQ-Bench v2 answers are scored (docs/benchmarks/eqbench.md)."""

    source: Literal["answers", "text"] = semantic(
        "answers",
        help="answers: the stored answers of each question; text: the stored text, parsed again.",
        flag="--from",
    )
    revision: bool | None = semantic(
        None, help="Whether answers have a first pass and a revised block; none: as the stored answers have it."
    )
    aggregation: Literal["official", "lm-eval"] = semantic(
        "official",
        help="official: unparsed items are left out; lm-eval: no revision, unparsed items score 0 and count.",
    )
    boundary: str | None = semantic(
        None, help="'<5' or '<=5': up to where a difference is curved; none: <5, with lm-eval <=5."
    )

    iterations: int = semantic(1, ge=1, help="Times a model is asked all questions.")
    tries: int = semantic(3, ge=1, help="Times a model is asked one question until its answer can be read.")

    @field_validator("boundary")
    @classmethod
    def _known_boundary(cls, value: str | None) -> str | None:
        if value is None:
            return None
        compact = value.replace(" ", "")
        if compact not in ("<5", "<=5"):
            raise ValueError("expected '<5' (a difference of 5 counts 5) or '<=5'")
        return compact

    @property
    def five_is_curved(self) -> bool:
        """True when a difference of exactly 5 goes through the curve."""
        chosen = self.boundary or ("<=5" if self.aggregation == "lm-eval" else "<5")
        return chosen == "<=5"


class EmoBenchConfig(_Benchmark):
    """How stored EmoBench answers are scored (docs/benchmarks/emobench.md)."""

    scoring: Literal["2024", "2025"] | None = semantic(
        None, help="2025: one answer an item; 2024: vote of the samples in each order; none: 2024 for CSV, else 2025."
    )
    tasks: tuple[str, ...] = semantic((), help="EA, EU; none: all that were answered. Repeatable.")
    languages: tuple[str, ...] = semantic((), help="en, zh; none: all that were answered. Repeatable.")
    shuffle_seed: int = semantic(0, ge=0, help="Seed of the shuffled orders of the choices (answers' 'order' above 0).")
    shuffled_orders: int | None = semantic(
        None, ge=0, help="Shuffled orders a model is asked in, beside the shipped one; none: 1, for scoring 2024 3."
    )
    samples: int | None = semantic(None, ge=1, help="Answers of a model in each order; none: 1, for scoring 2024 5.")


class SageConfig(_Benchmark):
    """How stored SAGE conversations are scored (docs/benchmarks/sage.md)."""

    rules: Literal["sage", "rlver"] = semantic(
        "sage",
        help="sage: emotion from 40, changes within 10, 10 user turns; rlver: from 30, any change, 8 turns.",
    )
    simulator: dict[str, Any] = semantic(
        {}, help="The model that plays the users (model, temperature ...), at endpoints.simulator or the default one."
    )
    simulator_options: dict[str, Any] = semantic({}, help="Further options of the environment sage.")


class QaConfig(_Benchmark):
    """How stored answers to questions are scored (docs/benchmarks/qa.md)."""

    split: str | None = semantic(None, help="Score the questions of this split only (test); none: all that were given.")
    environment_options: dict[str, Any] = semantic(
        {}, help="Options of the environment search in which a model looks for its answers."
    )


class AgreementConfig(StageConfig):
    """How the grades of several judges, or of one judge twice, are compared (docs/benchmarks/agreement.md)."""

    rubric: str = semantic("support", help="Rubric whose indicators were graded: its levels are the categories.")
    min_kappa: float = semantic(0.8, ge=-1.0, le=1.0, help="Gate: least test-retest kappa (quadratic weights).")
    min_alpha: float = semantic(0.667, ge=-1.0, le=1.0, help="Gate: least Krippendorff alpha (ordinal).")
    min_cosine: float = semantic(0.8, ge=-1.0, le=1.0, help="Gate: least mean cosine of increments.")
    confidence: float = semantic(0.95, gt=0.0, lt=1.0, help="Confidence of the intervals.")
    resamples: int = semantic(10_000, ge=1, help="Bootstrap resamples of scenarios.")
    seed: int = semantic(0, ge=0, help="Seed of the bootstrap.")
