"""Options of the judge ``rubric`` (``judge_options`` of a pipeline). Light to import."""

from typing import Literal

from dialrl.config import semantic
from dialrl.endpoint.settings import ModelSettings


class PanelMember(ModelSettings):
    """One judge model."""

    temperature: float = semantic(0.0, help="Sampling temperature; 0: the same answer again.", ge=0)
    max_tokens: int = semantic(
        1500, help="Tokens after which an answer is cut; a cut one is asked again with twice.", ge=1
    )
    endpoint: str = semantic("judge", help="The endpoint it is reached at.")


class RubricJudgeOptions(PanelMember):
    """A judge model, or the first of a panel."""

    rubric: str = semantic("support", help="A shipped rubric, or a YAML file.")
    samples: int = semantic(1, help="Samples of each judge; the median counts (of an even number the lower one).", ge=1)
    panel: tuple[PanelMember, ...] = semantic((), help="Further judges, whose samples count alike.")
    prompts: str | None = semantic(None, help="Folder with prompts of your own: judge/system.jinja, grade, assess.")
    response_format: Literal["json_schema", "json_object", "none"] = semantic(
        "json_schema", help="How the endpoint is made to answer in JSON."
    )
    assess: Literal["card", "judge"] = semantic(
        "card", help="P_0 from the levels on the card where it has them, or always by the judge."
    )
    longest_note_characters: int = semantic(
        300,
        help="Bound of evidence and of reasoning in the schema; less, and a small judge writes less.",
        ge=10,
        le=300,
    )
    longest_text_characters: int = semantic(8000, help="The middle of a longer message is left out.", ge=100)
