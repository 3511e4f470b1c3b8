"""What overflows is refused with its place, and never stored."""

import json

import pytest

from dialrl.errors import InputError
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.trajectory.importers.turns import import_turns


def judged(tmp_path, rewards):
    lines = [
        json.dumps({"group_id": "g", "sample": sample, "turn": turn, "reward": reward})
        for sample, turns in enumerate(rewards)
        for turn, reward in enumerate(turns)
    ]
    (tmp_path / "turns.jsonl").write_text("\n".join(lines), encoding="utf-8")
    import_turns(tmp_path / "turns.jsonl", tmp_path / "judged.parquet")
    return tmp_path / "judged.parquet"


@pytest.mark.filterwarnings("error")
def test_a_return_that_overflows_names_its_dialogue_and_turn(tmp_path):
    source = judged(tmp_path, [(1.0, 1.0), (1.5e308, 1.5e308)])
    with pytest.raises(InputError, match=r"column 'reward' is 1.5e.308 in dialogue 'g/1', turn 0"):
        compute_returns(source, tmp_path / "r.parquet", ReturnsConfig(reward=("given",)))
    assert not (tmp_path / "r.parquet").exists()


def test_a_reward_whose_spread_would_overflow_is_refused(tmp_path):
    source = judged(tmp_path, [(1e308,), (-1e308,)])
    with pytest.raises(InputError, match=r"column 'reward' is 1e\+308 in dialogue 'g/0', turn 0; expected a number"):
        compute_returns(source, tmp_path / "r.parquet", ReturnsConfig(reward=("given",)))
