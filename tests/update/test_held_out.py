"""What is evaluated on is not trained on: update refuses dialogues of the test split, wherever they come from."""

from pathlib import Path
from typing import Any

import pytest
from tests.trajectory_files import write
from tests.update.worlds import random_rows, read_data

from dialrl.errors import InputError
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter
from dialrl.update.config import UpdateConfig
from dialrl.update.held_out import refuse_held_out


def rolled_out(path: Path, split: str) -> TrajectoryFile:
    """An advantage file whose lineage names the split."""
    table = rows_to_table(random_rows(2))
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("rollout", options={"split": split}), StageRecord("advantage"))))
    return TrajectoryFile.open(path)


def test_a_rollout_on_the_test_split_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    rolled_out(tmp_path / "a.parquet", "test")
    with pytest.raises(InputError, match=r"a.parquet' was rolled out on the split 'test': what is trained on cannot"):
        read_data(tmp_path / "a.parquet", UpdateConfig(temperature=1.0))
    refuse_held_out(rolled_out(tmp_path / "b.parquet", "train"))


def imported(path: Path, environment: str | None, *scenarios: str) -> TrajectoryFile:
    """Dialogues that no rollout of ours made."""
    rows: list[dict[str, Any]] = [
        {**row, "group_id": name, "scenario_id": name, "environment": environment}
        for name in sorted(scenarios)
        for row in random_rows(1)
    ]
    return TrajectoryFile.open(write(path, rows, "import"))


@pytest.mark.parametrize(
    ("environment", "scenario"), [("support", "en-dark-father"), ("demo", "demo-test-000")], ids=["support", "demo"]
)
def test_an_imported_test_scenario_is_known_by_its_environment(tmp_path: Path, environment: str, scenario: str) -> None:
    source = imported(tmp_path / "a.parquet", environment, "another", scenario)
    with pytest.raises(InputError, match=f"holds the scenario '{scenario}' of the split 'test'"):
        refuse_held_out(source)


@pytest.mark.parametrize("environment", ["support", "somewhere else", None])
def test_scenarios_that_nobody_knows_are_trained(tmp_path: Path, environment: str | None) -> None:
    refuse_held_out(imported(tmp_path / "a.parquet", environment, "another", "one-more"))
