"""Loading a policy and naming it: equal weights have one digest, however they were stored."""

import json
import sys
from pathlib import Path

import pytest
from tests.toys import tiny_policy

from dialrl.errors import InputError, MissingExtraError, MissingInputError, UsageError
from dialrl.model.digest import policy_digest
from dialrl.model.loading import LoadingSettings, load_policy, model_directory


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("policy"))


def saved_again(policy: Path, directory: Path, **options) -> Path:
    model, tokenizer = load_policy(policy)
    model.save_pretrained(directory, **options)
    tokenizer.save_pretrained(directory)
    return directory


def test_a_policy_directory_and_its_model_directory_load_the_same(policy):
    model, tokenizer = load_policy(policy)
    again, _ = load_policy(policy / "model")
    assert not model.training
    assert tokenizer.chat_template
    assert all((a == b).all() for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_equal_weights_have_one_digest_over_shards_and_metadata(policy, tmp_path):
    whole = policy_digest(policy / "model")
    sharded = saved_again(policy, tmp_path / "sharded", max_shard_size="20KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert policy_digest(sharded) == whole
    config = json.loads((sharded / "config.json").read_text())
    config["transformers_version"] = "0.0.0"
    (sharded / "config.json").write_text(json.dumps(config))
    assert policy_digest(sharded) == whole
    assert whole.startswith("sha256:")


def test_one_changed_weight_changes_the_digest(policy, tmp_path):
    import torch

    model, _ = load_policy(policy)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    model.save_pretrained(tmp_path)
    assert policy_digest(tmp_path) != policy_digest(policy / "model")


def test_a_changed_configuration_changes_the_digest(policy, tmp_path):
    directory = saved_again(policy, tmp_path)
    config = json.loads((directory / "config.json").read_text())
    config["rms_norm_eps"] = 1e-3
    (directory / "config.json").write_text(json.dumps(config))
    assert policy_digest(directory) != policy_digest(policy / "model")


def test_a_broken_safetensors_file_is_named(policy, tmp_path):
    directory = saved_again(policy, tmp_path)
    (directory / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header....")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        policy_digest(directory)


def test_a_missing_policy_is_named(tmp_path):
    with pytest.raises(MissingInputError, match="nowhere"):
        load_policy(tmp_path / "nowhere")
    with pytest.raises(MissingInputError, match=r"\./nowhere/model"):
        load_policy("./nowhere/model")


def test_a_directory_that_is_no_policy_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no policy"):
        model_directory(tmp_path)


def test_weights_that_are_not_safetensors_are_refused(policy, tmp_path):
    directory = saved_again(policy, tmp_path)
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors only"):
        load_policy(directory)


def test_an_unknown_precision_is_refused(policy):
    with pytest.raises(UsageError, match="float32, bfloat16, float16"):
        load_policy(policy, LoadingSettings(precision="int3"))


def test_a_missing_extra_is_named(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"dialrl\[train\]"):
        load_policy(policy)
