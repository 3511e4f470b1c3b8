"""Judges by name: the built-in ones, and those of installed packages (entry points ``dialrl.judges``)."""

from collections.abc import Mapping
from typing import Any

from dialrl import plugins
from dialrl.judge.base import Judge

BUILT_IN = {
    "demo": ("dialrl.judge.demo_judge", "DemoJudge"),
    "rubric": ("dialrl.judge.rubric", "RubricJudge"),
}


def open_judge(name: str, options: Mapping[str, Any] | None = None) -> Judge:
    """The judge ``name`` made with ``options``. Raises UsageError for unknown names or options."""
    made: Judge = plugins.make("judges", name, options or {}, built_in=BUILT_IN)
    return made
