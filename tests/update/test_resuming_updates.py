"""--resume leaves a finished output alone only when policy and total steps are those it was made with."""

from pathlib import Path

import pytest
from tests.update.worlds import save_policy, turn_row, write_advantages

from dialrl.errors import UsageError
from dialrl.model.digest import policy_digest
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_manifest
from dialrl.update.stage import update_policy

CONFIG = UpdateConfig(learning_rate=1e-2, max_mismatch=100.0)


@pytest.fixture
def advantages(tmp_path: Path) -> Path:
    return write_advantages(tmp_path / "a.parquet", [turn_row("g", 0, 0, [1], [2])])


def test_another_policy_is_not_taken_for_the_one_the_output_came_from(advantages: Path, tmp_path: Path) -> None:
    first, other = save_policy(tmp_path / "p0"), save_policy(tmp_path / "q0", seed=1)
    update_policy(advantages, first, tmp_path / "p1", CONFIG)
    with pytest.raises(UsageError, match=r"is not resumed: policy: sha256:\w+ -> sha256:\w+$"):
        update_policy(advantages, other, tmp_path / "p1", CONFIG, resume=True)
    made = update_policy(advantages, other, tmp_path / "p1", CONFIG, resume=True, overwrite=True)
    assert made.figures["parent_digest"] == policy_digest(other)
    again = update_policy(advantages, other, tmp_path / "p1", CONFIG, resume=True)
    assert again.warnings == ("Complete already; left as it is.",)


def test_other_total_steps_are_named_and_none_takes_those_of_the_output(advantages: Path, tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "p0")
    update_policy(advantages, policy, tmp_path / "p1", CONFIG, total_steps=4)
    with pytest.raises(UsageError, match=r"is not resumed: total_steps: 4 -> 5$"):
        update_policy(advantages, policy, tmp_path / "p1", CONFIG, total_steps=5, resume=True)
    for steps in (4, None):
        update_policy(advantages, policy, tmp_path / "p1", CONFIG, total_steps=steps, resume=True)
    manifest = read_manifest(tmp_path / "p1")
    assert manifest is not None
    assert manifest.total_steps == 4
