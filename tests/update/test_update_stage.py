"""The stage as a command sees it: a new policy, metrics, a summary; refusals; and nothing at all without a signal."""

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from tests.update.worlds import random_rows, save_policy, tiny_model, turn_row, write_advantages

from dialrl.errors import InputError, MissingInputError, OutputExistsError, UsageError, WriteError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import LoadingSettings, load_model
from dialrl.trajectory.atomic import made_by_one
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import read_manifest
from dialrl.update.stage import update_policy
from dialrl.update.trainer import Trainer

CONFIG = UpdateConfig(learning_rate=1e-2, max_mismatch=100.0)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "p0")


@pytest.fixture
def advantages(tmp_path: Path) -> Path:
    return write_advantages(tmp_path / "a.parquet", random_rows(8))


def test_an_update_writes_a_policy_that_loads(policy: Path, advantages: Path, tmp_path: Path) -> None:
    summary = update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    assert sorted(path.name for path in (tmp_path / "p1").iterdir()) == [
        "manifest.json", "metrics.jsonl", "model", "trainer",
    ]  # fmt: skip
    assert (tmp_path / "p1" / "model" / "tokenizer.json").read_text() == '{"stands": "in"}'
    assert (tmp_path / "p1.run.json").is_file()
    assert summary.figures["policy_digest"] == policy_digest(tmp_path / "p1" / "model")
    assert summary.figures["parent_digest"] == policy_digest(policy)
    before, after = (load_model(path, LoadingSettings()) for path in (policy, tmp_path / "p1"))
    assert not torch.equal(before.get_parameter("model.norm.weight"), after.get_parameter("model.norm.weight"))


def test_weights_move_towards_good_and_away_from_bad_replies(policy: Path, tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2], advantage=1.0), turn_row("g", 1, 0, [1], [3], advantage=-1.0)]
    update_policy(write_advantages(tmp_path / "a.parquet", rows), policy, tmp_path / "p1", CONFIG)

    def probabilities(path: Path) -> torch.Tensor:
        return load_model(path, LoadingSettings())(torch.tensor([[1]])).logits[0, 0].softmax(-1)

    before, after = probabilities(policy), probabilities(tmp_path / "p1")
    assert after[2] > before[2]
    assert after[3] < before[3]


def test_metrics_are_one_json_object_an_optimizer_step(policy: Path, advantages: Path, tmp_path: Path) -> None:
    update_policy(advantages, policy, tmp_path / "p1", CONFIG.updated(epochs=2))
    lines = [json.loads(line) for line in (tmp_path / "p1" / "metrics.jsonl").read_text().splitlines()]
    assert [line["optimizer_step"] for line in lines] == [1, 2]
    assert {
        "loss", "gradient_norm", "mean_abs_advantage", "ratio_mean", "ratio_max", "clipped_share", "entropy",
        "kl_old_new", "mismatch_mean", "advantage_std", "advantage_count", "tokens_per_second", "trained_tokens",
        "dialogues", "learning_rate",
    } <= set(lines[0])  # fmt: skip


@pytest.mark.parametrize("advantage", [0.0, None])
def test_without_a_learning_signal_the_weights_stay_and_the_summary_says_so(
    advantage: float | None, policy: Path, tmp_path: Path
) -> None:
    # Field case 9. Weight decay alone would move the weights.
    rows = [turn_row("g", sample, 0, [1], [2, 3], advantage=advantage) for sample in range(4)]
    path = write_advantages(tmp_path / "a.parquet", rows)
    summary = update_policy(path, policy, tmp_path / "p1", CONFIG.updated(weight_decay=0.5))
    assert summary.warnings[0].startswith("no learning signal")
    assert summary.figures["policy_digest"] == summary.figures["parent_digest"] == policy_digest(policy)
    manifest = read_manifest(tmp_path / "p1")
    assert manifest is not None
    assert (manifest.step, manifest.optimizer_steps) == (1, 0)
    assert (tmp_path / "p1" / "metrics.jsonl").read_text() == ""


def test_a_file_without_signal_in_the_middle_of_a_run_keeps_the_state(
    policy: Path, advantages: Path, tmp_path: Path
) -> None:
    silent = write_advantages(tmp_path / "b.parquet", [turn_row("g", 0, 0, [1], [2], advantage=0.0)])
    update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    update_policy(silent, tmp_path / "p1", tmp_path / "p2", CONFIG)
    for name in ("model/model.safetensors", "trainer/moments-00001-of-00001.safetensors"):
        assert (tmp_path / "p1" / name).read_bytes() == (tmp_path / "p2" / name).read_bytes()


def test_an_existing_output_is_refused_or_replaced(policy: Path, advantages: Path, tmp_path: Path) -> None:
    update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    first = policy_digest(tmp_path / "p1" / "model")
    with pytest.raises(OutputExistsError):
        update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    update_policy(advantages, policy, tmp_path / "p1", CONFIG, overwrite=True)
    assert policy_digest(tmp_path / "p1" / "model") == first


def test_resuming_finished_work_leaves_it_and_interrupted_work_is_done_again(
    policy: Path, advantages: Path, tmp_path: Path
) -> None:
    (tmp_path / ".p1.tmp" / "model").mkdir(parents=True)  # what a kill leaves behind
    update_policy(advantages, policy, tmp_path / "p1", CONFIG, resume=True)
    changed = (tmp_path / "p1" / "manifest.json").stat().st_mtime_ns
    summary = update_policy(advantages, policy, tmp_path / "p1", CONFIG.updated(micro_batch_tokens=64), resume=True)
    assert (tmp_path / "p1" / "manifest.json").stat().st_mtime_ns == changed
    assert summary.warnings == ("Complete already; left as it is.",)


def test_resuming_with_other_settings_names_what_differs(policy: Path, advantages: Path, tmp_path: Path) -> None:
    update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    with pytest.raises(UsageError, match=r"learning_rate: 0.01 -> 0.02"):
        update_policy(advantages, policy, tmp_path / "p1", CONFIG.updated(learning_rate=0.02), resume=True)
    other = write_advantages(tmp_path / "b.parquet", random_rows(8, seed=5))
    with pytest.raises(UsageError, match="other files"):
        update_policy(other, policy, tmp_path / "p1", CONFIG, resume=True)


def test_a_file_of_an_earlier_stage_is_refused(policy: Path, tmp_path: Path) -> None:
    row = turn_row("g", 0, 0, [1], [2])
    del row["advantage"]
    from dialrl.trajectory.lineage import Lineage
    from dialrl.trajectory.rows import rows_to_table
    from dialrl.trajectory.writer import TrajectoryWriter

    table = rows_to_table([row])
    with TrajectoryWriter(tmp_path / "r.parquet", table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage())
    with pytest.raises(InputError, match="advantage"):
        update_policy(tmp_path / "r.parquet", policy, tmp_path / "p1", CONFIG)
    assert not (tmp_path / "p1").exists()


def test_a_missing_policy_or_input_is_named(policy: Path, advantages: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="nowhere"):
        update_policy(tmp_path / "nowhere.parquet", policy, tmp_path / "p1", CONFIG)
    with pytest.raises(MissingInputError, match="nobody"):
        update_policy(advantages, tmp_path / "nobody", tmp_path / "p1", CONFIG)


def test_a_reference_policy_enters_by_its_digest(policy: Path, advantages: Path, tmp_path: Path) -> None:
    tiny_model(seed=4).save_pretrained(tmp_path / "reference")
    config = CONFIG.updated(kl_coefficient=0.5, reference=tmp_path / "reference")
    summary = update_policy(advantages, policy, tmp_path / "p1", config)
    assert summary.figures["kl_reference"] > 0
    manifest = read_manifest(tmp_path / "p1")
    assert manifest is not None
    assert manifest.options["reference"] == policy_digest(tmp_path / "reference")


def test_supervised_training_raises_the_probability_of_chosen_replies(policy: Path, tmp_path: Path) -> None:
    rows = [
        turn_row("g", 0, 0, [1, 2], [3, 4], reply_logprobs=None, advantage=1.0),
        turn_row("g", 1, 0, [1, 2], [5, 6], reply_logprobs=None, advantage=-1.0),
    ]
    path = write_advantages(tmp_path / "a.parquet", rows, sampling={"top_p": 0.8})
    summary = update_policy(path, policy, tmp_path / "p1", CONFIG.updated(loss="sft", epochs=20))
    lines = (tmp_path / "p1" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["loss"] < 0.5 * json.loads(lines[0])["loss"]
    assert summary.counts["dialogues"] == 1


def test_an_output_that_another_update_makes_is_refused_before_training(
    policy: Path, advantages: Path, tmp_path: Path
) -> None:
    with (
        made_by_one(tmp_path / "p1"),
        pytest.raises(UsageError, match=rf"'{tmp_path}/p1' is in use by process {os.getpid()} on"),
    ):
        update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    update_policy(advantages, policy, tmp_path / "p1", CONFIG)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_output_over_the_base_of_its_adapter_or_over_its_input_is_refused(policy: Path, tmp_path: Path) -> None:
    advantages, lora = write_advantages(tmp_path / "a.parquet", random_rows(8)), CONFIG.updated(lora_rank=2)
    fresh = lora.updated(fresh_optimizer=True)
    update_policy(advantages, policy, tmp_path / "full", CONFIG)
    for start in (tmp_path / "full", tmp_path / "full" / "model"):
        with pytest.raises(UsageError, match="would replace the base model that the adapter belongs to"):
            update_policy(advantages, start, tmp_path / "full", fresh, overwrite=True)
    update_policy(advantages, tmp_path / "full", tmp_path / "adapted", fresh)
    with pytest.raises(UsageError, match="would replace the base model"):
        update_policy(advantages, tmp_path / "adapted", tmp_path / "full", lora, overwrite=True)
    update_policy(advantages, tmp_path / "adapted", tmp_path / "adapted", lora, overwrite=True)  # its base is elsewhere
    inside = write_advantages(tmp_path / "full" / "a.parquet", random_rows(8))
    with pytest.raises(UsageError, match=r"would replace the input '.*full/a.parquet'"):
        update_policy(inside, policy, tmp_path / "full", CONFIG, overwrite=True)


@pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}])
def test_a_half_policy_in_the_way_is_refused_in_the_same_words_whatever_was_asked(
    flags: dict[str, bool], policy: Path, advantages: Path, tmp_path: Path
) -> None:
    (tmp_path / "half" / "model").mkdir(parents=True)
    with pytest.raises(
        OutputExistsError, match=r"'.*half' exists and is no policy directory .*Name another one, or rem"
    ):
        update_policy(advantages, policy, tmp_path / "half", CONFIG, **flags)


def test_a_place_that_takes_no_policy_is_refused_before_training(
    policy: Path, advantages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dialrl.update.stage.open_trainer", None)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputExistsError, match=r"'.*/file/x' would lie inside '.*/file', which is a file"):
        update_policy(advantages, policy, tmp_path / "file" / "x", CONFIG)
    with pytest.raises(WriteError, match=r"'/proc/p1' could not be written: .* Nothing can be created in '/proc'"):
        update_policy(advantages, policy, Path("/proc/p1"), CONFIG)


def test_weights_that_do_not_fit_on_the_disk_say_so_and_leave_nothing(
    policy: Path, advantages: Path, tmp_path: Path
) -> None:
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(
            WriteError, match=r"'.*/p1', 'trainer/moments-.*' in it, could not be written: File too large"
        ):
            update_policy(advantages, policy, tmp_path / "p1", CONFIG)
        with (
            Trainer.open(policy, CONFIG) as trainer,
            pytest.raises(WriteError, match="'model' in it, could not be wri"),
        ):
            trainer.step_file(advantages)
            trainer.save(tmp_path / "p1", with_trainer_state=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "p0"]
