"""Options of the environment ``support`` (``environment_options`` of a pipeline). Light to import."""

from dialrl.config import StageConfig, semantic
from dialrl.endpoint.settings import ModelSettings
from dialrl.environment.simulator import END_MARKER


class SupportOptions(StageConfig):
    """Who plays the person, who directs, and which persons there are."""

    actor: ModelSettings | None = semantic(None, help="The model that plays the person.")
    director: ModelSettings | None = semantic(None, help="The model that steers the story; none: no director.")
    cards: str | None = semantic(None, help="File or folder of cards; none: the shipped ones.")
    languages: tuple[str, ...] = semantic((), help="Only cards in these languages; empty: all.")
    prompts: str | None = semantic(None, help="Folder with prompts of your own: support/actor.jinja, director, policy.")
    system_prompt: bool = semantic(True, help="Give the policy a system prompt (support/policy.jinja).")
    turn_limit: int = semantic(15, help="Policy turns after which a dialogue is cut.", ge=1)
    early_turns: int = semantic(4, help="A farewell before this many policy turns is flagged.", ge=0)
    longest_text_characters: int = semantic(
        8000, help="The middle of a longer message is left out for actor and director; the policy's own view is whole.",
        ge=100,
    )  # fmt: skip
    end_marker: str = semantic(END_MARKER, help="What the actor writes to end the dialogue.", min_length=3)
