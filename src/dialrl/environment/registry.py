"""Environments by name: the built-in ones, and those of installed packages (entry points ``dialrl.environments``)."""

from collections.abc import Mapping
from typing import Any

from dialrl import plugins
from dialrl.environment.base import Environment

BUILT_IN = {
    "demo": ("dialrl.environment.demo_environment", "DemoEnvironment"),
    "support": ("dialrl.environment.support.environment", "SupportEnvironment"),
    "sage": ("dialrl.environment.sage.environment", "SageEnvironment"),
    "search": ("dialrl.environment.search.environment", "SearchEnvironment"),
}


def open_environment(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """The environment ``name`` made with ``options``. Raises UsageError for unknown names or options."""
    made: Environment = plugins.make("environments", name, options or {}, built_in=BUILT_IN)
    return made
