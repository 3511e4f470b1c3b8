"""The index of papers names pipelines that are there, and leaves no preset out."""

import re

from tests.docs.test_docs import PRESETS, ROOT

TEXT = (ROOT / "docs/papers.md").read_text(encoding="utf-8")


def test_every_pipeline_it_names_is_there() -> None:
    named = {name.removeprefix("pipelines/") for name in re.findall(r"`((?:pipelines/)?[\w+.-]+\.yaml)`", TEXT)}
    assert {name for name in named if not (ROOT / "pipelines" / name).is_file()} == set()
    assert len(named) > 10


def test_every_preset_has_its_paper() -> None:
    assert {preset for preset in PRESETS if f"`{preset}`" not in TEXT and f"--preset {preset}" not in TEXT} == set()
