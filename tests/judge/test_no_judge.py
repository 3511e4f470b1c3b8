"""``judge: none``: credit that needs no judge gets its dialogues as they are."""

from tests.trajectory_files import read, row, write

from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.trajectory.reader import TrajectoryFile


def answered(place):
    rows = [
        row("q", sample, turn, scenario_id="q", environment="search", reply="hm", status="ok",
            end_reason=None if turn == 0 else "answer", outcome=None if turn == 0 else float(sample))
        for sample in (0, 1)
        for turn in (0, 1)
    ]  # fmt: skip
    return write(place, rows, "rollout")


def test_dialogues_go_on_as_they_are_and_the_lineage_says_that_nobody_judged(tmp_path):
    source = answered(tmp_path / "rollout.parquet")
    summary = judge_files(source, tmp_path / "judge.parquet", JudgeConfig(judge="none"))
    assert read(tmp_path / "judge.parquet") == read(source)
    assert (summary.counts, summary.figures) == ({"turns": 4}, {"judge": "none"})
    record = TrajectoryFile.open(tmp_path / "judge.parquet").lineage.record("judge")
    assert record.options["judge"] == "none"


def test_an_outcome_alone_becomes_the_return(tmp_path):
    source = answered(tmp_path / "rollout.parquet")
    judge_files(source, tmp_path / "judge.parquet", JudgeConfig(judge="none"), slim=True)
    config = ReturnsConfig(reward=("outcome",), gamma=1.0)
    compute_returns(tmp_path / "judge.parquet", tmp_path / "returns.parquet", config)
    assert [made["return"] for made in read(tmp_path / "returns.parquet")] == [0.0, 0.0, 1.0, 1.0]


def test_a_complete_output_is_left_and_grades_can_follow(tmp_path):
    source = answered(tmp_path / "rollout.parquet")
    output = tmp_path / "judge.parquet"
    judge_files(source, output, JudgeConfig(judge="none"))
    before = output.read_bytes()
    again = judge_files(source, output, JudgeConfig(judge="none"), resume=True)
    assert again.figures["already_complete"] is True
    assert output.read_bytes() == before
