"""What somebody changed in a policy directory, or set beside a command, is told as an error about that."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.update.worlds import random_rows, save_policy, tiny_model, turn_row, write_advantages

from dialrl.errors import InputError, NumericalError, UsageError
from dialrl.model.distributed import Processes
from dialrl.model.torchrun import Started, started
from dialrl.update.config import UpdateConfig
from dialrl.update.finite import check_finite
from dialrl.update.stage import update_policy

CONFIG = UpdateConfig(learning_rate=1e-2, max_mismatch=100.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with advantages, a base policy, one after an update, and one after an update of an adapter."""
    folder = tmp_path_factory.mktemp("made")
    advantages, base = write_advantages(folder / "a.parquet", random_rows(4)), save_policy(folder / "base")
    update_policy(advantages, base, folder / "full", CONFIG)
    update_policy(advantages, base, folder / "lora", CONFIG.updated(lora_rank=2))
    return folder


def changed(made: Path, tmp_path: Path, file: str, content: str | Mapping[str, Any]) -> Path:
    """A copy of the policy in ``made`` that ``file`` belongs to, with other content; None takes a key out."""
    name, inside = file.split("/", 1)
    shutil.copytree(made / name, tmp_path / name)
    place = tmp_path / name / inside
    if not isinstance(content, str):
        merged = json.loads(place.read_text()) | content
        content = json.dumps({key: value for key, value in merged.items() if value is not None})
    place.write_text(content)
    return tmp_path / name


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("full/model/config.json", "{", r"model/config.json' is not valid JSON"),
        ("full/model/config.json", "[]", r"model/config.json' holds a list; expected an object"),
        ("full/model/config.json", {"hidden_size": "abc"}, r"(?s)model' cannot be loaded .*expected int, got str"),
        ("full/model/config.json", {"hidden_size": 32}, r"model' cannot be loaded as a causal language model"),
        ("full/manifest.json", "{", r"manifest.json' is not valid JSON"),
        ("full/manifest.json", {"new": 1}, r"manifest.json': 'new' is not known\. The policy directory is not whole"),
        ("full/manifest.json", {"digest": None}, r"manifest.json': 'digest' is missing"),
        ("full/manifest.json", {"inputs": [{"x": 1}]}, r"manifest.json': 'inputs.0.name' is missing"),
        ("full/manifest.json", {"step": "two"}, r"manifest.json': 'step' holds 'two'"),
        (
            "full/trainer/trainer.json",
            '{"format_version": 2}',
            r"trainer.json': 'step' is missing; .*--fresh-optimizer",
        ),
        ("full/trainer/trainer.json", {"files": {"moments": 1}}, r"trainer.json': 'files.moments' holds 1"),
        ("lora/adapter/base.json", "{", r"base.json' is not valid JSON"),
        ("lora/adapter/base.json", "{}", r"base.json': 'path' is missing; 'digest' is missing\. Run the update again"),
    ],
)
def test_a_changed_file_is_named_with_what_is_wrong_in_it(
    file: str, content: str | Mapping[str, Any], sentence: str, made: Path, tmp_path: Path
) -> None:
    policy = changed(made, tmp_path, file, content)
    if "hidden_size" in content:  # the digest tells first, where a manifest has one
        (policy / "manifest.json").unlink()
        policy = policy / "model"
    config = CONFIG.updated(lora_rank=2) if policy.name == "lora" else CONFIG
    with pytest.raises(InputError, match=sentence):
        update_policy(made / "a.parquet", policy, tmp_path / "out", config)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("device", ["tpu", "", "mps", "meta", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(device: str, made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"device is '{device}'"):
        update_policy(made / "a.parquet", made / "base", tmp_path / "out", CONFIG.updated(device=device))


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2, but not RANK, MASTER_ADDR, MASTER_PORT: torchrun did not start"),
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE='abc'; expected a whole number of at least 1"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0'; expected a whole number of at least 1"),
        ({"RANK": "first"}, "RANK='first'; expected a whole number"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK='-1'; expected a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "RANK=2 of WORLD_SIZE=2"),
    ],
)
def test_an_environment_that_torchrun_cannot_have_made_is_refused(
    environment: dict[str, str], sentence: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=sentence):
        update_policy(made / "a.parquet", made / "base", tmp_path / "out", CONFIG)


def test_what_torchrun_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started() == Started(1, 0, None)
    values = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert started() == Started(4, 3, 1)


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 1e38}, {"learning_rate": 1e38, "lora_rank": 2}, {"weight_decay": 1e38, "learning_rate": 1e3}],
)
def test_weights_that_a_step_made_infinite_are_not_saved(options: dict[str, Any], made: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NumericalError, match=r"not finite after optimiser step 1 \(first of \d+: '.*'\), so nothing was sa"
    ):
        update_policy(made / "a.parquet", made / "base", tmp_path / "out", CONFIG.updated(**options))
    assert list(tmp_path.iterdir()) == []


def test_weights_that_only_rounding_makes_infinite_are_refused_when_they_are_rounded() -> None:
    weights = [("a", torch.zeros(0)), ("b", torch.tensor([3.395e38]))]  # bfloat16 ends at 3.3895e38
    check_finite(weights, Processes(), rounded=False, step=1)
    with pytest.raises(NumericalError, match="'b'"):
        check_finite(weights, Processes(), rounded=True, step=1)


def test_a_reference_with_a_smaller_vocabulary_is_refused_by_the_token_it_lacks(made: Path, tmp_path: Path) -> None:
    smaller = tiny_model()
    smaller.resize_token_embeddings(8)
    smaller.save_pretrained(tmp_path / "reference")
    advantages = write_advantages(
        tmp_path / "a.parquet", [turn_row("g", 0, 0, [1], [9]), turn_row("g", 1, 0, [1], [2])]
    )
    config = CONFIG.updated(kl_coefficient=0.1, reference=tmp_path / "reference")
    with pytest.raises(InputError, match="'g/0' holds token id 9; the reference's vocabulary has 8 ids"):
        update_policy(advantages, made / "base", tmp_path / "out", config)
