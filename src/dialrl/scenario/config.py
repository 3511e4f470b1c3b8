"""Settings of ``dialrl import qa``. Not here: reading and writing (``import_questions``)."""

from dialrl.config import StageConfig, semantic


class ImportQaConfig(StageConfig):
    """How question sets become questions of the environment search."""

    split: str | None = semantic(None, help="Name all questions' split so (train, test); none: as the files have it.")
    skip_unanswered: bool = semantic(
        False, help="Leave questions without an accepted answer out; else they are refused."
    )
