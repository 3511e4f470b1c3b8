"""A policy directory is complete or not there, holds what its manifest says, and is never someone else's folder."""

import json
import os
from pathlib import Path

import pytest
import torch
from tests.update.worlds import save_policy, tiny_model

from dialrl.errors import InputError, OutputExistsError, UsageError
from dialrl.model.digest import policy_digest
from dialrl.model.distributed import Processes
from dialrl.model.loading import LoadingSettings, load_model
from dialrl.update.config import UpdateConfig
from dialrl.update.policy_directory import (
    Manifest,
    atomic_directory,
    checked_digest,
    copy_model,
    read_manifest,
    refuse_output,
    save_model,
)
from dialrl.update.trainer_state import TrainerProgress, read_trainer_state, write_progress, write_shards


def fill(directory: Path, text: str = "one") -> None:
    Manifest(digest=text, parent=None).write(directory)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_nothing_is_visible_before_the_block_ends(tmp_path: Path) -> None:
    output = tmp_path / "policy"
    with atomic_directory(output, overwrite=False) as directory:
        fill(directory)
        assert not output.exists()
    assert names(tmp_path) == ["policy"]
    assert names(output) == ["manifest.json"]


def test_files_and_folders_reach_the_disk_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, flushed, sync = tmp_path / "policy", list[tuple[int, bool]](), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (flushed.append((os.fstat(file).st_ino, output.exists())), sync(file))[1]
    )
    with atomic_directory(output, overwrite=False) as directory:
        (directory / "model").mkdir()
        (directory / "model" / "weights").write_bytes(b"1")
        fill(directory)
    whole = [output, *output.rglob("*")]
    assert {file for file, is_visible in flushed if not is_visible} >= {path.stat().st_ino for path in whole}
    assert (tmp_path.stat().st_ino, True) in flushed


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="broken"),
        atomic_directory(tmp_path / "policy", overwrite=False) as directory,
    ):
        fill(directory)
        raise RuntimeError("broken")
    assert names(tmp_path) == []


def test_what_a_kill_left_behind_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / ".policy.tmp"
    (left / "model").mkdir(parents=True)
    with atomic_directory(tmp_path / "policy", overwrite=False) as directory:
        assert names(directory) == []
        fill(directory)
    assert names(tmp_path) == ["policy"]


def test_an_existing_policy_is_replaced_only_when_asked(tmp_path: Path) -> None:
    output = tmp_path / "policy"
    for text in ("one", "two"):
        with atomic_directory(output, overwrite=text == "two") as directory:
            fill(directory, text)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.digest == "two"
    assert names(tmp_path) == ["policy"]
    with pytest.raises(OutputExistsError, match="--overwrite"):
        refuse_output(output, overwrite=False)


def test_a_directory_in_the_making_is_refused_to_another_process(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "p", overwrite=False) as directory:
        fill(directory, "first")
        with pytest.raises(UsageError, match="in use"), atomic_directory(tmp_path / "p", overwrite=False):
            raise AssertionError
    manifest = read_manifest(tmp_path / "p")
    assert manifest is not None
    assert manifest.digest == "first"


def test_generation_settings_that_transformers_would_not_write_are_carried_byte_for_byte(tmp_path: Path) -> None:
    source = save_policy(tmp_path / "plain")
    text = '{"temperature": 0.6, "top_p": 0.9, "do_sample": false, "eos_token_id": [3, 4]}'
    (source / "generation_config.json").write_text(text)
    model = load_model(source, LoadingSettings())
    for name, options in {"whole": {}, "rounded": {"rounded": True}}.items():
        save_model(model, source, tmp_path / name, **options)
        assert (tmp_path / name / "generation_config.json").read_text() == text
    assert model.generation_config.temperature == 0.6
    (source / "generation_config.json").unlink()
    save_model(model, source, tmp_path / "none")
    assert not (tmp_path / "none" / "generation_config.json").exists()


def test_a_folder_that_is_no_policy_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="is no policy directory"):
        refuse_output(tmp_path, overwrite=True)
    (tmp_path / "empty").mkdir()
    refuse_output(tmp_path / "empty", overwrite=False)


def test_a_directory_without_manifest_was_never_completed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="never completed"):
        read_manifest(tmp_path)


def test_a_plain_transformers_directory_is_a_policy_without_manifest(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "plain")
    assert read_manifest(policy) is None
    assert read_trainer_state(policy) is None
    assert checked_digest(policy) == policy_digest(policy)


def test_weights_that_are_not_the_manifests_are_refused(tmp_path: Path) -> None:
    save_policy(tmp_path / "model")
    Manifest(digest="sha256:other", parent=None).write(tmp_path)
    with pytest.raises(InputError, match="files were changed after it was written"):
        checked_digest(tmp_path)


def test_a_copied_model_keeps_digest_tokenizer_and_template(tmp_path: Path) -> None:
    source = save_policy(tmp_path / "plain")
    (source / "optimizer.pt").write_bytes(b"a pickle")
    copy_model(source, tmp_path / "copy")
    assert policy_digest(tmp_path / "copy") == policy_digest(source)
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert (tmp_path / "copy" / "chat_template.jinja").is_file()
    assert not (tmp_path / "copy" / "optimizer.pt").exists()


def test_rounded_weights_load_as_bfloat16(tmp_path: Path) -> None:
    model = tiny_model()
    save_model(model, save_policy(tmp_path / "plain"), tmp_path / "rounded", rounded=True)
    assert json.loads((tmp_path / "rounded" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_model(tmp_path / "rounded", LoadingSettings())
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name).bfloat16().float())


def test_a_trainer_state_comes_back_bit_for_bit_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dialrl.update.trainer_state.SHARD_BYTES", 100)
    moments = {f"exp_avg.{i}": torch.randn(5, 4) for i in range(3)}
    directory = tmp_path / "trainer"
    directory.mkdir()
    write_shards("moments", moments, directory, Processes())
    write_progress(TrainerProgress(3, 7, 9, "sha256:x"), UpdateConfig(), directory)
    back = read_trainer_state(tmp_path)
    assert back is not None
    assert (back.step, back.optimizer_steps, back.total_steps, back.cursor) == (3, 7, 9, "sha256:x")
    assert all(torch.equal(back.moments[name].read(), tensor) for name, tensor in moments.items())
    assert len(list((tmp_path / "trainer").glob("moments-*-of-00003.safetensors"))) == 3


def test_a_manifest_comes_back_as_written(tmp_path: Path) -> None:
    manifest = Manifest(digest="a", parent="b", step=2, optimizer_steps=4, options={"loss": "ppo"}, counts={"turns": 3})
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest
