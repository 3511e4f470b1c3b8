"""A run directory: made, refused, continued, pruned; nothing else is ever removed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.trajectory_files import turns, write

from dialrl.errors import InputError, OutputExistsError, UsageError, WriteError
from dialrl.train.config import PipelineConfig, TrainConfig
from dialrl.train.damage import check_damage
from dialrl.train.retention import keep_best, prune
from dialrl.train.run_directory import RunDirectory, read_json, read_pipeline_file, remove_directory
from dialrl.trajectory.lineage import InputFile, StageRecord
from dialrl.trajectory.reader import TrajectoryFile, file_digest
from dialrl.trajectory.transform import transform
from dialrl.update.policy_directory import Manifest


def pipeline(**sections):
    return PipelineConfig.model_validate(sections)


def prepared(path, *, overwrite=False, resume=False, **sections):
    run = RunDirectory(path)
    run.prepare(pipeline(**sections), overwrite=overwrite, resume=resume)
    return run


# used directories ---------------------------------------------------------------------------------------------------


def test_a_new_run_stores_its_resolved_configuration(tmp_path):
    run = prepared(tmp_path / "runs" / "demo", rollout={"groups": 3})
    assert read_pipeline_file(run.path / "pipeline.yaml") == pipeline(rollout={"groups": 3})


def test_an_empty_folder_may_become_a_run(tmp_path):
    assert (prepared(tmp_path).path / "pipeline.yaml").is_file()


def test_a_run_killed_before_it_began_is_no_used_directory(tmp_path):
    (tmp_path / ".pipeline.yaml.tmp").write_text("rollo")
    assert [path.name for path in prepared(tmp_path).path.iterdir()] == ["pipeline.yaml"]


def test_a_file_is_no_run_directory(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(OutputExistsError, match="is a file; a run is a directory"):
        prepared(tmp_path / "thesis.txt")


def test_a_place_that_takes_no_files_is_told_by_the_name_that_was_given():
    with pytest.raises(WriteError, match="'/proc/run'"), RunDirectory(Path("/proc/run")).in_use():
        pass


def failing_start(run, *, made=()):
    directory = RunDirectory(run)
    with pytest.raises(UsageError), directory.unless_refused(), directory.in_use():
        prepared(run)
        for name in made:
            (run / name).write_text("x")
        raise UsageError("the engine does not open")


def test_nothing_is_left_of_a_start_that_was_refused(tmp_path):
    failing_start(tmp_path / "runs" / "bad")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    failing_start(tmp_path / "mine" / "bad")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_a_start_made_stays_when_it_fails_later(tmp_path):
    failing_start(tmp_path / "run", made=["evaluations.jsonl"])
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"pipeline.yaml", "evaluations.jsonl"}


def test_a_used_directory_is_refused_and_left_alone(tmp_path):
    prepared(tmp_path / "run")
    with pytest.raises(OutputExistsError, match=r"is not empty\. Continue the run with --resume, replace it with"):
        prepared(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    for options in ({}, {"resume": True}):
        with pytest.raises(OutputExistsError, match="is not empty"):
            prepared(tmp_path / "other", **options)
    with pytest.raises(OutputExistsError, match=r"is no run directory \(no pipeline\.yaml\), so it is not replaced"):
        prepared(tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").is_file()


def test_a_run_can_be_replaced(tmp_path):
    (prepared(tmp_path / "run").path / "0000").mkdir()
    run = prepared(tmp_path / "run", overwrite=True, rollout={"groups": 2})
    assert list(run.iterations()) == []
    assert read_pipeline_file(run.path / "pipeline.yaml").rollout.groups == 2


def test_another_configuration_is_refused_naming_its_keys(tmp_path):
    prepared(tmp_path / "run", rollout={"groups": 3})
    with pytest.raises(
        UsageError, match=r"configuration differs: returns\.gamma: 0\.85 -> 0\.5; rollout\.groups: 3 -> 16"
    ):
        prepared(tmp_path / "run", resume=True, returns={"gamma": 0.5})
    assert prepared(tmp_path / "run", resume=True, rollout={"groups": 3}, train={"keep_last": 5})
    assert read_pipeline_file(tmp_path / "run" / "pipeline.yaml").train.keep_last == 5


def test_resuming_what_was_never_begun_begins_it(tmp_path):
    assert (prepared(tmp_path / "run", resume=True).path / "pipeline.yaml").is_file()


def test_a_resumed_run_is_rid_of_halves_and_keeps_finished_blocks(tmp_path):
    run = prepared(tmp_path / "run")
    for half in ("0000/.policy.tmp", "0000/.policy.replaced.tmp", "0001/.policy.removed.tmp", ".best.tmp"):
        (run.path / half / "model").mkdir(parents=True)
    (run.path / "0000" / ".judge.parquet.tmp").write_bytes(b"half")
    (run.path / "0001" / ".rollout.parquet.parts").mkdir()
    (run.path / "0001" / ".rollout.parquet.parts" / "000000.parquet").write_bytes(b"whole")
    prepared(tmp_path / "run", resume=True)
    left = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
    assert left == ["0001/.rollout.parquet.parts/000000.parquet", "pipeline.yaml"]


# retention ----------------------------------------------------------------------------------------------------------


def policies(run, count, *, with_trainer=()):
    """Iteration folders 0..count-1 with a policy each; those of ``with_trainer`` can be resumed from."""
    for number in range(count):
        policy = run.iteration(number).policy
        (policy / "model").mkdir(parents=True)
        (policy / "trainer").mkdir()
        (policy / "model" / "weights").write_text(str(number))
        (policy / "manifest.json").write_text(json.dumps({"trainer_state": number in with_trainer}))


def kept(run):
    return [folder.number for folder in run.iterations() if folder.has_policy]


@pytest.mark.parametrize(
    ("options", "with_trainer", "remain"),
    [
        ({"keep_last": 2}, [7], [6, 7]),
        ({"keep_last": 1}, [4], [4, 7]),  # what a resume needs stays
        ({"keep_last": 1}, [1, 4], [4, 7]),  # of several, the latest
        ({"keep_last": 1, "keep_every": 3}, [7], [2, 5, 7]),  # every third iteration, counted from 1
        ({"keep_last": 9}, [], [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_latest_every_nth_and_the_resumable_policy_are_kept(tmp_path, options, with_trainer, remain):
    run = prepared(tmp_path / "run")
    policies(run, 8, with_trainer=with_trainer)
    prune(run, TrainConfig(**options), 7)
    assert kept(run) == remain
    assert len(list(run.iterations())) == 8  # the folders with the trajectories all stay
    assert list(run.path.glob("*/.*")) == []


def test_while_a_run_is_replayed_later_policies_are_not_touched(tmp_path):
    run = prepared(tmp_path / "run")
    policies(run, 6, with_trainer=[1, 5])
    prune(run, TrainConfig(keep_last=1), 3)
    assert kept(run) == [1, 3, 4, 5]


def evaluated(run, *scores):
    """``scores`` of the base and of iterations 0, 1 ..."""
    for folder, score in zip((run.base, *map(run.iteration, range(len(scores) - 1))), scores, strict=True):
        folder.path.mkdir(exist_ok=True)
        folder.evaluation.write_text(json.dumps({"score": score}))


def best(run, *scores):
    """What ``best/`` holds after each iteration was compared in turn."""
    policies(run, len(scores) - 1)
    evaluated(run, *scores)
    for number in range(len(scores) - 1):
        keep_best(run, run.iteration(number))
    return (run.best / "model" / "weights").read_text() if run.best.exists() else None


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ((0.0, 1.0, 3.0, 2.0), "1"),
        ((0.0, 1.0, 1.0), "0"),  # of equals the earlier
        ((5.0, 1.0, 3.0), None),  # nothing was better than the policy the run began with
        ((-3.0, -2.0, -1.0), "1"),
    ],
)
def test_best_holds_the_policy_with_the_best_held_out_score(tmp_path, scores, winner):
    run = prepared(tmp_path / "run")
    assert best(run, *scores) == winner
    assert not (run.best / "trainer").exists()
    assert not list(run.path.glob(".*"))


def test_a_removed_directory_is_gone_at_once(tmp_path):
    (tmp_path / "policy" / "model").mkdir(parents=True)
    remove_directory(tmp_path / "policy")
    remove_directory(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


# metrics ------------------------------------------------------------------------------------------------------------


def test_metrics_of_all_iterations_stand_in_one_file_a_line_each(tmp_path):
    run = prepared(tmp_path / "run")
    evaluated(run, 0.0, 1.0, 2.0)
    for number in (10_000, 9_999, 1, 0):
        run.iteration(number).path.mkdir(exist_ok=True)
        run.iteration(number).metrics.write_text(json.dumps({"iteration": number}))
    run.collect()
    lines = [json.loads(line)["iteration"] for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [0, 1, 9_999, 10_000]
    scores = [json.loads(line)["score"] for line in (run.path / "evaluations.jsonl").read_text().splitlines()]
    assert scores == [0.0, 1.0, 2.0]
    assert read_json(run.iteration(1).metrics) == {"iteration": 1}


# damage -------------------------------------------------------------------------------------------------------------


def finished(path):
    """A run directory with one whole iteration: four files that name each other, a policy, records."""
    run = prepared(path)
    folder = run.iteration(0)
    folder.path.mkdir()
    write(folder.rollout, turns(2, scenario_id="s"))
    for before, after, column in (
        (folder.rollout, folder.judge, "kl"), (folder.judge, folder.returns, "reward"),
        (folder.returns, folder.advantage, "advantage"),
    ):  # fmt: skip
        made_slim(before, after, column)
    folder.policy.mkdir()
    weights = b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    (folder.policy / "w.safetensors").write_bytes(len(weights).to_bytes(8, "little") + weights + b"1234")
    inputs = (InputFile("advantage.parquet", file_digest(folder.advantage)),)
    Manifest("sha256:x", parent=None, inputs=inputs).write(folder.policy)
    folder.metrics.write_text("{}")
    return run


def made_slim(before, after, column):
    stage = after.stem
    transform(
        TrajectoryFile.open(before), after, stage=stage, adds=[column], reads=(),
        compute=lambda table: {column: pa.array([0.5] * table.num_rows)}, record=lambda: StageRecord(stage), slim=True,
    )  # fmt: skip


def test_a_whole_run_is_not_damaged(tmp_path):
    check_damage(finished(tmp_path / "run"))


def cut(file):
    file.write_bytes(file.read_bytes()[:-3])


def swap_a_byte(file):
    content = bytearray(file.read_bytes())
    content[10] ^= 255
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "harm", "said"),
    [
        ("advantage.parquet", cut, "truncated"),
        ("advantage.parquet", swap_a_byte, "the policy beside it was trained on sha256:"),
        ("returns.parquet", swap_a_byte, "that file now has sha256:"),
        ("judge.parquet", cut, "judge.parquet"),
        ("rollout.parquet", lambda file: file.unlink(), "completes 'rollout.parquet', which is not there"),
        ("metrics.json", lambda file: file.write_text('{"score": 0.'), "metrics.json"),
        ("policy/manifest.json", lambda file: file.write_text(""), "manifest.json"),
        ("policy/w.safetensors", cut, "not those its header tells of"),
    ],
)
def test_damage_in_a_finished_iteration_is_named_with_what_to_do(tmp_path, name, harm, said):
    run = finished(tmp_path / "run")
    harm(run.iteration(0).path / name)
    with pytest.raises(InputError, match=r"is damaged in .*Put the file back, or remove '.*0000'") as refused:
        check_damage(run)
    assert said in str(refused.value)
