"""What vLLM is given to load, and what the probe compares it with: on real weights, without vLLM."""

import asyncio
import json

import numpy as np
import pytest
import torch
from tests.toys import tiny_policy

from dialrl.endpoint.served import announce, resolved, withdraw
from dialrl.endpoint.settings import EndpointSettings
from dialrl.engine.delivery_probe import probe_prompts, probe_sampler, reference_of, stored_reference
from dialrl.engine.hf import HfEngine
from dialrl.engine.vllm import dtype_of, reply_stop_ids
from dialrl.engine.vllm_copy import servable
from dialrl.engine.vllm_platform import context_limit, whole_prompt_tokens
from dialrl.engine.vllm_settings import VllmSettings
from dialrl.errors import UsageError
from dialrl.model.loading import LoadingSettings, load_model, load_policy, load_tokenizer


def test_a_tied_model_is_served_as_an_untied_copy_that_is_the_same_function(tmp_path):
    model = tiny_policy(tmp_path / "policy") / "model"
    copy = servable(model, tmp_path / "work")
    assert copy != model
    assert json.loads((copy / "config.json").read_text())["tie_word_embeddings"] is False
    own, copied = (load_model(place, LoadingSettings()) for place in (model, copy))
    assert copied.get_output_embeddings().weight.data_ptr() != copied.get_input_embeddings().weight.data_ptr()
    ids = torch.arange(20).unsqueeze(0)
    with torch.inference_mode():
        assert torch.equal(own(ids).logits, copied(ids).logits)
    assert servable(model, tmp_path / "work") == copy


def test_an_untied_model_is_served_from_where_it_lies(tmp_path):
    model = tiny_policy(tmp_path / "policy", tie_word_embeddings=False) / "model"
    assert servable(model, tmp_path / "work") == model
    assert not (tmp_path / "work").exists()


def test_the_trainers_model_and_its_directory_give_one_reference(tmp_path):
    policy = tiny_policy(tmp_path / "policy")
    prompts = probe_prompts(policy)
    assert [len(prompt) for prompt in prompts] == [24, 150, 300]
    model, _ = load_policy(policy)
    model.train()
    held, stored = reference_of(model, prompts), stored_reference(policy, prompts)
    assert model.training
    assert np.array_equal(held.logprobs_PV, stored.logprobs_PV)
    assert held.difference([{5: float(row[5])} for row in held.logprobs_PV]) == 0
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.01)
    assert reference_of(model, prompts).moved_from(held) > 1e-3
    assert [len(prompt) for prompt in probe_prompts(policy, 100)] == [24, 100]


def test_the_sampler_is_compared_with_the_trainer_for_any_engine_that_gives_ids(tmp_path):
    policy = tiny_policy(tmp_path / "policy")
    found = asyncio.run(probe_sampler(HfEngine.open(policy), policy))
    assert found.tokens > 3
    assert found.mean <= found.largest < 1e-4
    other = tiny_policy(tmp_path / "other", seed=1)
    assert asyncio.run(probe_sampler(HfEngine.open(other), policy)).mean > 0.1


def test_an_engine_without_ids_cannot_be_compared(tmp_path):
    from dialrl.endpoint.settings import ModelSettings
    from dialrl.engine.openai import OpenAIEngine

    engine = OpenAIEngine(ModelSettings(model="m"), "chat", "endpoint:m")
    with pytest.raises(UsageError, match="cannot be compared"):
        asyncio.run(probe_sampler(engine, tmp_path))


def test_precision_context_and_stop_tokens_follow_the_models_own_files(tmp_path):
    model = tiny_policy(tmp_path / "policy") / "model"
    assert dtype_of(model, VllmSettings()) == "float32"
    assert dtype_of(model, VllmSettings(dtype="bfloat16")) == "bfloat16"
    assert context_limit(model, VllmSettings()) == 512
    assert context_limit(model, VllmSettings(max_model_len=64)) == 64
    assert whole_prompt_tokens(model, VllmSettings()) == 4096
    assert whole_prompt_tokens(model, VllmSettings(max_model_len=9000)) == 9000
    assert reply_stop_ids(model) == (0, 2)  # <|endoftext|> and <|im_end|>
    line_break = load_tokenizer(model).encode("\n", add_special_tokens=False)
    assert set(line_break) < set(reply_stop_ids(model, {"chat_template": "plain"}))
    configuration = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**configuration, "dtype": "bfloat16"}))
    assert dtype_of(model, VllmSettings()) == "bfloat16"


def test_an_address_by_name_is_known_while_its_server_runs(monkeypatch):
    monkeypatch.setattr("dialrl.endpoint.served._ADDRESSES", {})
    settings = EndpointSettings(base_urls=["vllm:policy"])
    with pytest.raises(UsageError, match="engine 'vllm' is open"):
        _ = settings.addresses
    announce("policy", "http://127.0.0.1:1/v1")
    assert settings.addresses == ["http://127.0.0.1:1/v1"]
    assert resolved("http://else/v1") == "http://else/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "hosted")
    monkeypatch.setenv("VLLM_API_KEY", "ours")
    assert settings.key == "ours"
    withdraw("policy")
    with pytest.raises(UsageError, match="running are: none"):
        resolved("vllm:policy")
