"""Users' own channels and presets go through the same stages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from credit_files import GOLDEN, advantage_of, flat, read, returns_of, rows_of, write
from dialrl import plugins
from dialrl.advantage.presets import Preset, describe_presets, preset
from dialrl.advantage.terms import Term
from dialrl.errors import UsageError
from dialrl.returns.channels import Channel, ChannelValues

LENGTH_BONUS = Channel(
    name="length-bonus",
    description="one for every turn",
    needs=("reward_given",),
    values=lambda batch, config: ChannelValues(np.ones(batch.rows)),
)
OWN = Preset(
    name="own",
    formula="sum r",
    source="a test",
    compared="nobody",
    bias="none",
    group_of_one="its sum",
    terms=(Term(name="own", accumulate="sum"),),
)


def register(monkeypatch: pytest.MonkeyPatch, kind: str, entry: Any) -> None:
    """As if an installed package had registered ``entry``."""
    point = SimpleNamespace(name=entry.name, value="package:entry", dist=None, load=lambda: entry)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == f"dialrl.{kind}" else [])


def test_a_channel_of_an_installed_package_is_a_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "channels", LENGTH_BONUS)
    source = write(tmp_path / "turns.parquet", rows_of(GOLDEN))
    returned, _ = returns_of(source, reward=("length-bonus=0.5",))
    assert [row["reward"] for row in read(returned)] == [0.5] * 11
    assert read(returned)[0]["reward_length-bonus"] == 1.0


def test_a_preset_of_an_installed_package_is_an_estimator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "presets", OWN)
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of({"g": [(1.0, 2.0), (4.0,)]})))
    rows, _ = advantage_of(returned, preset="own")
    assert flat([row["advantage"] for row in rows]) == [3.0, 3.0, 4.0]


def test_no_package_may_take_a_name_that_means_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "channels", SimpleNamespace(name="filled"))
    with pytest.raises(UsageError, match="'filled', which is taken"):
        returns_of(write(tmp_path / "turns.parquet", rows_of(GOLDEN)), reward=("filled",))


def test_a_broken_preset_of_an_installed_package_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'ahead'")

    point = SimpleNamespace(name="ahead", value="ahead:AHEAD", dist=SimpleNamespace(name="ahead-preset"), load=load)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "dialrl.presets" else [])
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of(GOLDEN)))
    advantage_of(returned, preset="mica")
    with pytest.raises(UsageError, match=r"'ahead-preset' registers presets name 'ahead' .*: No module"):
        advantage_of(returned, preset="ahead")
    listed = {entry["name"]: entry for entry in describe_presets()}
    assert "does not load" in listed["ahead"]["broken"]
    assert "broken" not in listed["mica"]


def test_a_preset_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "presets", SimpleNamespace(name="own"))
    with pytest.raises(UsageError, match="preset 'own' of an installed package is a SimpleNamespace"):
        preset("own")
