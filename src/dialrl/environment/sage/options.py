"""Options of the environment ``sage`` (``environment_options`` of a pipeline). Light to import."""

from typing import Literal

from dialrl.config import StageConfig, semantic
from dialrl.endpoint.settings import ModelSettings
from dialrl.environment.sage.appraisal import LONGEST_ANALYSIS
from dialrl.environment.simulator import END_MARKER


class SageOptions(StageConfig):
    """Who plays the users, which users there are, and by which rules they feel."""

    profiles: str = semantic(help="Profiles of users, JSON lines, in SAGE's own format.")
    simulator: ModelSettings | None = semantic(None, help="The model that plays the users.")
    rules: Literal["sage", "rlver"] = semantic("sage", help="Rules of the emotion.")
    limit: int | None = semantic(None, help="The first N profiles only; none: all.", ge=1)
    prompts: str | None = semantic(None, help="Folder with prompts of your own: sage/appraise.jinja, speak, policy.")
    system_prompt: bool = semantic(True, help="Give the policy a system prompt (sage/policy.jinja).")
    response_format: Literal["json_schema", "json_object", "none"] = semantic(
        "json_schema", help="How the endpoint is made to answer in JSON."
    )
    longest_analysis: int = semantic(
        LONGEST_ANALYSIS, help="Characters of the simulator's thought about a reply.", ge=1, le=LONGEST_ANALYSIS
    )
    end_marker: str = semantic(END_MARKER, help="What the simulator writes to end the conversation.", min_length=3)
