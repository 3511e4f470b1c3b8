"""Users' own channels and presets go through the same stages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from credit_files import GOLDEN, advantage_of, flat, read, returns_of, rows_of, write
from dialrl import plugins
from dialrl.advantage.presets import Preset
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


@pytest.mark.parametrize("name", ["outcome", "filled"])
def test_no_package_may_take_a_name_that_means_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    register(monkeypatch, "channels", SimpleNamespace(name=name))
    with pytest.raises(UsageError, match=f"'{name}', which is taken"):
        returns_of(write(tmp_path / "turns.parquet", rows_of(GOLDEN)))
