"""Which model an adapter belongs to: ``base.json`` beside its weights. Loads nothing."""

from dataclasses import dataclass
from pathlib import Path

from dialrl.json_file import Checked, as_record, read_object

_REMEDY = "Run the update again that made this policy."


@dataclass(frozen=True)
class BaseModel(Checked):
    """``path``: its model directory; ``digest``: of that directory when the adapter was saved."""

    path: str
    digest: str


def read_base(file: Path) -> BaseModel:
    """What ``adapter/base.json`` says. Raises InputError when it does not."""
    return as_record(BaseModel, read_object(file, remedy=_REMEDY), where=f"'{file}'", remedy=_REMEDY)
