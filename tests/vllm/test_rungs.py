"""Field case 19 on a real vLLM: two deliveries on every rung that runs on a CPU, with tied and untied embeddings."""

import asyncio

import numpy as np
import pytest
from tests.vllm.models import adapted, changed, engine_options

from dialrl.endpoint.calls import ModelCalls
from dialrl.engine.delivery import Ladder
from dialrl.engine.delivery_probe import probe_sampler, stored_reference
from dialrl.engine.vllm import VllmEngine
from dialrl.model.digest import policy_digest

CLOSE = 1e-3  # mean |sampler - trainer| in float32


def sampled(engine: VllmEngine, policy):
    """Mean |difference| of sampled tokens' log-probs to the policy's own weights in transformers."""
    calls = ModelCalls()
    engine.connect(calls)

    async def probe():
        async with calls:
            return await probe_sampler(engine, policy, temperature=0.8)

    return asyncio.run(probe())


def test_sampler_and_trainer_agree_on_the_same_ids(engine, policy):
    found = sampled(engine, policy)
    assert found.tokens > 10
    assert found.mean < CLOSE
    assert engine.policy_digest == policy_digest(policy)


@pytest.mark.parametrize("rung", ["lora", "reload", "restart"])
def test_two_deliveries_arrive_on_every_rung(engine, policy, tmp_path, monkeypatch, rung):
    monkeypatch.setattr(Ladder, "rungs_for", lambda self, weights: [rung])
    prompts = engine.reference(policy).prompts
    before = engine.ladder.host.next_logprobs(prompts, engine.ladder.model_name)
    make = adapted if rung == "lora" else changed
    for number in (1, 2):
        delivered = make(policy, tmp_path / f"policy-{number}", seed=number)
        delivery = engine.deliver(delivered)
        now = engine.ladder.host.next_logprobs(prompts, engine.ladder.model_name)
        reference = stored_reference(delivered, prompts)
        assert (delivery.rung, delivery.dropped) == (rung, ())
        assert delivery.difference < CLOSE
        assert reference.difference(now) < CLOSE
        # They moved, at prompts that the prefix cache held from the weights before as at short ones.
        old = [reference.logprobs_PV[place][list(seen)] - list(seen.values()) for place, seen in enumerate(before)]
        assert min(np.abs(gaps).mean() for gaps in old) > 10 * CLOSE
        assert engine.policy_digest == delivery.digest == policy_digest(delivered / "model")
        assert sampled(engine, delivered).mean < CLOSE
        before = now


def test_the_served_model_is_untied_where_the_policys_is_tied(engine, policy):
    import json

    def tied(model):
        return json.loads((model / "config.json").read_text())["tie_word_embeddings"]

    assert tied(engine.ladder.host.model) is False
    assert (engine.ladder.host.model.parent == engine.ladder.work) == tied(policy)
    assert engine_options()["python"]
