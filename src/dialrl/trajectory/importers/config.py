"""Configurations of ``dialrl import``. Not here: reading and converting (``empa``, ``turns``)."""

from dialrl.config import StageConfig, operational, semantic


class ImportEmpaConfig(StageConfig):
    """How published EMPA result files become judged dialogues."""

    rubric: str = semantic("support", help="Rubric whose indicators and scores the published levels belong to.")
    reasoning: bool = semantic(True, help="Keep the judge's reasoning beside level and evidence.")
    batch_rows: int = operational(20_000, ge=1, help="Turns converted and written at a time (whole groups).")


class ImportTurnsConfig(StageConfig):
    """How logged turns (JSON lines) become a trajectory file."""

    allow_gaps: bool = semantic(
        False, help="Take dialogues whose turn numbers have gaps; the numbers, so time, are kept."
    )
    batch_rows: int = operational(20_000, ge=1, help="Turns converted and written at a time (whole groups).")
