"""Prompts as files: jinja2 templates that ship in ``data/prompts`` and that a user's folder may replace one by one.

A template is rendered once; what is put into it (dialogues, cards, answers of models) is data and is never read as a
template. A name that a template uses and nobody gives is an error. Not here: what a prompt says.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialrl.errors import MissingInputError, UsageError
from dialrl.resources import resource

if TYPE_CHECKING:
    from jinja2 import Environment


class Prompts:
    """The templates under ``folder`` (a user's own, may hold some or none), else the shipped ones."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folders = [resource("prompts")]
        if folder is not None:
            own = Path(folder)
            if not own.is_dir():
                raise MissingInputError(
                    f"The folder of prompts '{own}' does not exist. Give a folder with .jinja files."
                )
            self._folders.insert(0, own)
        self._templates: Environment | None = None

    def render(self, name: str, **values: Any) -> str:
        """The text of the template ``name`` ("judge/grade.jinja"). Raises UsageError for one that cannot be used."""
        from jinja2 import TemplateError

        try:
            return self._environment().get_template(name).render(**values)
        except TemplateError as error:
            raise UsageError(f"The prompt '{name}' cannot be used: {type(error).__name__}: {error}") from None

    def digest(self, *names: str) -> str:
        """Content hash of the templates ``names``, for the lineage."""
        content = hashlib.sha256()
        for name in names:
            content.update(self._path(name).read_bytes() + b"\0")
        return "sha256:" + content.hexdigest()

    def _path(self, name: str) -> Path:
        return next((folder / name for folder in self._folders if (folder / name).is_file()), self._folders[-1] / name)

    def _environment(self) -> "Environment":
        if self._templates is None:
            from jinja2 import Environment, FileSystemLoader, StrictUndefined

            # Prompts are plain text for a model; nothing of them is shown as HTML.
            self._templates = Environment(  # noqa: S701
                loader=FileSystemLoader([str(folder) for folder in self._folders]),
                undefined=StrictUndefined,
                trim_blocks=True,
                lstrip_blocks=True,
            )
            self._templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": False}
        return self._templates
