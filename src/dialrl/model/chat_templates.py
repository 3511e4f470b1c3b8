"""Options of a rendering, and the chat templates that ship for models without one.

``chat_template`` among the options is a shipped name (``plain``: a transcript, one line a turn; ``chatml``), a
``.jinja`` file, or the template's text; all others are variables of the template itself. Not here: rendering
(``dialrl.model.template``).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialrl.config import nearest
from dialrl.errors import MissingInputError, UsageError
from dialrl.resources import resource

_OWN = ("conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message")
_FOLDER = "chat-templates"


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with the text of ``chat_template`` in place of its name.

    Raises UsageError for an option that the rendering itself sets, or a name that is no shipped template,
    MissingInputError for a file that does not exist.
    """
    taken = sorted(set(options) & set(_OWN))
    if taken:
        raise UsageError(f"template_options.{taken[0]} is set by every rendering itself; leave it out.")
    if options.get("chat_template") is None:
        return {name: value for name, value in options.items() if name != "chat_template"}
    return {**options, "chat_template": template_text(str(options["chat_template"]))}


def template_text(given: str) -> str:
    """The template that ``given`` names, or ``given`` itself where it is one (it holds a jinja tag)."""
    if "{{" in given or "{%" in given:
        return given
    if given.endswith(".jinja"):
        file = Path(given)
        if not file.is_file():
            raise MissingInputError(f"The chat template '{file}' does not exist. Give a .jinja file.")
        return file.read_text(encoding="utf-8")
    if given not in shipped():
        raise UsageError(
            f"There is no chat template '{given}'; shipped are {', '.join(shipped())}.{nearest(given, shipped())} Or"
            " give a .jinja file."
        )
    return resource(f"{_FOLDER}/{given}.jinja").read_text(encoding="utf-8")


def shipped() -> list[str]:
    """Names of the templates that ship."""
    return sorted(file.stem for file in resource(_FOLDER).glob("*.jinja"))


def template_digest(template: Any) -> str | None:
    """Content hash of a template's text; None for a tokenizer that has no single one."""
    if not isinstance(template, str):
        return None
    return "sha256:" + hashlib.sha256(template.encode()).hexdigest()
