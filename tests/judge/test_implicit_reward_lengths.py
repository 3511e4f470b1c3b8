"""The judge implicit-reward: which turns make the mean length of a turn, and how long a dialogue may be."""

import json

import pytest
from tests.judge.test_implicit_reward import dialogues, scored, spoken
from tests.update.worlds import save_policy, write_advantages

from dialrl.errors import InputError
from dialrl.trajectory.reader import TrajectoryFile


def save_models(folder):
    return save_policy(folder / "phi", seed=1), save_policy(folder / "reference")


def test_the_mean_length_is_that_of_the_turns_that_count(tmp_path):
    first, second, third, fourth = dialogues()
    rows = [
        {**first, "stop_turn": 0}, {**second, "stop_turn": 0}, third, fourth,
        spoken([3], [4, 5, 6, 7, 8], 2, status="error", outcome=1.0),
    ]  # fmt: skip
    output, _ = scored(write_advantages(tmp_path / "a.parquet", rows), save_models(tmp_path))
    record = TrajectoryFile.open(output).lineage.record("judge")
    assert record.details["mean_reply_tokens"] == pytest.approx(5 / 3)  # of 2, 1 and 2 tokens


@pytest.mark.parametrize("short", [0, 1], ids=["reward model", "reference"])
def test_a_dialogue_fits_the_shorter_of_the_two_contexts(short, tmp_path):
    models = save_models(tmp_path)
    file = models[short] / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 6}))
    with pytest.raises(InputError, match="dialogue 'g/0', turn 0 begins a segment of 10 tokens; the model takes 6"):
        scored(write_advantages(tmp_path / "a.parquet", dialogues()), models)
