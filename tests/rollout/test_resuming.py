"""Killed anywhere and resumed, a rollout equals the unbroken one; equal seeds give equal files (field case 33)."""

import pytest
from tests.scripted import replies_by_seed, rolled_out, settings

from dialrl.errors import OutputExistsError, UsageError
from dialrl.rollout.stage import roll_out
from dialrl.testing import ScriptedEngine, scripted_policy
from dialrl.trajectory.lineage import run_file
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.reader import TrajectoryFile


class Killed(BaseException):
    """What stands for kill -9."""


class DyingEngine(ScriptedEngine):
    """Dies at its ``calls_left``-th call."""

    def __init__(self, calls_left):
        super().__init__(replies_by_seed)
        self.calls_left = calls_left

    def generate_block(self, requests, sampling):
        if self.calls_left == 0:
            raise Killed
        self.calls_left -= 1
        return super().generate_block(requests, sampling)


def dying_policy(calls):
    policy = scripted_policy(replies_by_seed)
    return type(policy)(DyingEngine(calls), policy.template, policy.digest, policy.step)


def unbroken(tmp_path, config):
    roll_out(scripted_policy(replies_by_seed), tmp_path / "unbroken.parquet", config)
    return (tmp_path / "unbroken.parquet").read_bytes()


@pytest.fixture
def written(monkeypatch):
    """Numbers of the blocks that were written, in order."""
    numbers = []
    write = Parts.write
    monkeypatch.setattr(
        Parts, "write", lambda self, block, table: (numbers.append(block), write(self, block, table))[1]
    )
    return numbers


def test_the_same_seed_twice_gives_the_same_bytes(tmp_path):
    config = settings(3, 4, grading="live", judge="scripted", judge_options={"levels": [{"C.Prog": 1}]})
    for name in ("1", "2"):
        roll_out(scripted_policy(replies_by_seed), tmp_path / name / "r.parquet", config)
    assert (tmp_path / "1" / "r.parquet").read_bytes() == (tmp_path / "2" / "r.parquet").read_bytes()


def test_operational_settings_change_no_byte_and_the_seed_does(tmp_path):
    contents = []
    for seed, timeout in ((0, 10.0), (0, 20.0), (1, 10.0)):
        config = settings(2, 2, seed=seed, call_timeout_seconds=timeout)
        roll_out(scripted_policy(replies_by_seed), tmp_path / "r.parquet", config, overwrite=True)
        contents.append((tmp_path / "r.parquet").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_20_dialogues_killed_at_7_done_and_1_half(tmp_path, written):
    # Blocks of one dialogue, three turns each: 7 dialogues are 21 calls; the eighth dies in its second turn.
    config, path = settings(20, 1, block_dialogues=1), tmp_path / "r.parquet"
    with pytest.raises(Killed):
        roll_out(dying_policy(22), path, config)
    parts = tmp_path / ".r.parquet.parts"
    kept = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in parts.glob("*.parquet")}
    assert sorted(kept) == [f"{number:06d}.parquet" for number in range(7)]
    assert not path.exists()
    written.clear()
    with pytest.raises(Killed):  # killed once more, as soon as it asks for a reply
        roll_out(dying_policy(0), path, config, resume=True)
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in parts.glob("*.parquet")} == kept
    again = scripted_policy(replies_by_seed)
    roll_out(again, path, config, resume=True)
    assert written == list(range(7, 20))
    assert len({call.scenario for call in again.engine.calls}) == 13
    assert path.read_bytes() == unbroken(tmp_path, config)
    assert not parts.exists()


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 5, 8])
def test_a_block_that_was_half_done_is_done_again_wherever_the_kill_fell(tmp_path, calls):
    # 8 dialogues in three blocks of 3, 3 and 2, three calls each.
    config, path = settings(4, 2, block_dialogues=3), tmp_path / "r.parquet"
    with pytest.raises(Killed):
        roll_out(dying_policy(calls), path, config)
    again = scripted_policy(replies_by_seed)
    roll_out(again, path, config, resume=True)
    assert len({call.scenario for call in again.engine.calls}) == 8 - 3 * (calls // 3)
    assert path.read_bytes() == unbroken(tmp_path, config)


def test_a_kill_between_publishing_and_clearing_leaves_nothing_to_do(tmp_path, monkeypatch):
    config, path = settings(2, 2), tmp_path / "r.parquet"

    def die(self):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Parts, "clear", die)
        roll_out(scripted_policy(replies_by_seed), path, config)
    assert (tmp_path / ".r.parquet.parts").exists()
    idle = scripted_policy(replies_by_seed)
    assert roll_out(idle, path, config, resume=True).figures["already_complete"]
    assert idle.engine.calls == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.parquet", "r.parquet.run.json"]


def test_a_changed_configuration_is_refused_listing_its_keys(tmp_path):
    config, path = settings(4, 2, block_dialogues=1), tmp_path / "r.parquet"
    with pytest.raises(Killed):
        roll_out(dying_policy(3), path, config)
    other = config.updated(temperature=0.5, seed=3, call_timeout_seconds=1.0)
    with pytest.raises(UsageError, match=r"settings differ: seed: 0 -> 3; temperature: 1\.0 -> 0\.5\. Give"):
        roll_out(scripted_policy(replies_by_seed), path, other, resume=True)
    with pytest.raises(UsageError, match="settings differ: policy: 'sha256:scripted' -> 'sha256:other'"):
        roll_out(scripted_policy(replies_by_seed, policy_digest="sha256:other"), path, config, resume=True)
    with pytest.raises(OutputExistsError, match="unfinished"):
        roll_out(scripted_policy(replies_by_seed), path, config)


def test_a_complete_output_is_continued_as_it_is_or_refused(tmp_path):
    config, path = settings(2, 2), tmp_path / "r.parquet"
    _, summary = rolled_out(path, config)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    idle = scripted_policy(replies_by_seed)
    again = roll_out(idle, path, config.updated(device="cuda"), resume=True)
    assert again.counts == summary.counts
    assert idle.engine.calls == []
    with pytest.raises(UsageError, match="complete and was made with other settings: top_k: 0 -> 5"):
        roll_out(idle, path, config.updated(top_k=5), resume=True)
    with pytest.raises(UsageError, match="policy: 'sha256:scripted' -> 'sha256:other'"):
        roll_out(scripted_policy(["x"], policy_digest="sha256:other"), path, config, resume=True)
    with pytest.raises(OutputExistsError):
        roll_out(idle, path, config)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_resume_with_overwrite_replaces_what_was_made_otherwise(tmp_path):
    path = tmp_path / "r.parquet"
    roll_out(scripted_policy(replies_by_seed), path, settings(2, 2))
    before = path.stat().st_mtime_ns
    roll_out(scripted_policy(replies_by_seed), path, settings(2, 2), resume=True, overwrite=True)
    assert path.stat().st_mtime_ns == before
    roll_out(scripted_policy(replies_by_seed), path, settings(2, 2, seed=1), resume=True, overwrite=True)
    assert TrajectoryFile.open(path).lineage.record("rollout").seed == 1


def test_a_rollout_killed_before_its_run_file_gets_one_on_resume(tmp_path):
    path = tmp_path / "r.parquet"
    rolled_out(path, settings(2, 2))
    run_file(path).unlink()
    roll_out(scripted_policy(replies_by_seed), path, settings(2, 2), resume=True)
    assert "killed" in run_file(path).read_text()


def test_the_lineage_holds_what_the_rollout_was_made_with(tmp_path):
    config = settings(2, 2, seed=5, temperature=0.7)
    _, summary = rolled_out(tmp_path / "r.parquet", config)
    record = TrajectoryFile.open(tmp_path / "r.parquet").lineage.record("rollout")
    assert record.options == config.semantic_values()
    assert record.seed == 5
    assert record.counts == summary.counts
    assert [(file.name, file.digest) for file in record.inputs] == [("policy", "sha256:scripted")]
    assert record.details["sampling"]["temperature"] == 0.7
    assert record.details["logprobs_kind"] == "drawn"
    assert record.details["history"] == "append"
    assert "call_timeout_seconds" not in record.options
    assert (tmp_path / "r.parquet.run.json").exists()
