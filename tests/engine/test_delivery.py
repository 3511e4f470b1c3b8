"""The delivery ladder on a pretended vLLM that can fail in every way a real one does (field case 19)."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from dialrl.engine.delivery import Delivery, Ladder, Weights
from dialrl.engine.delivery_probe import Reference
from dialrl.engine.vllm_host import HostError
from dialrl.engine.vllm_settings import RUNGS, VllmSettings
from dialrl.errors import EngineError

PROMPTS = ((1, 2, 3), (4, 5))


def reference(number: float) -> Reference:
    """A policy by one number: log-probs of two tokens after two prompts."""
    return Reference(PROMPTS, np.array([[-number, -1.0], [-2 * number, -0.5]], dtype=np.float32))


@dataclass
class PretendedHost:
    """Serves the log-probs of what it last took. ``broken``: what fails; ``deaf``: what changes nothing."""

    policies: dict[str, Reference]
    broken: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    transferable: bool = False
    calls: list[str] = field(default_factory=list)
    model: Path | None = None
    is_held: bool = False

    def __post_init__(self) -> None:
        self._adapters: dict[str, str] = {}

    def _do(self, name: str) -> bool:
        self.calls.append(name)
        if name in self.broken:
            raise HostError(f"{name} is broken")
        return name not in self.deaf

    def start(self, model: Path) -> None:
        self._do("start")
        self.model = model

    def stop(self) -> None:
        self._do("stop")

    def drain(self) -> None:
        self._do("drain")
        self.is_held = True

    def resume(self) -> None:
        self._do("resume")
        self.is_held = False

    def reload(self, model: Path) -> None:
        assert self.is_held
        if self._do("reload"):
            self.model = model

    def transfer(self, model: Path) -> None:
        assert self.is_held
        if self._do("transfer"):
            self.model = model

    def cannot_transfer(self) -> str | None:
        return None if self.transferable else "no GPU"

    def add_adapter(self, name: str, folder: Path) -> None:
        if self._do("add_adapter"):
            self._adapters[name] = folder.parent.name
        else:
            self._adapters[name] = self.model.name if self.model else ""

    def remove_adapter(self, name: str) -> None:
        self._do("remove_adapter")
        del self._adapters[name]

    def next_logprobs(self, prompts, model_name):
        assert not self.is_held
        served = self._adapters.get(model_name) or self.model.name
        table = self.policies[served].logprobs_PV
        return [{token: float(row[token]) for token in range(2)} for row in table]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Three policies; what vLLM is given is named like the policy."""
    monkeypatch.setattr("dialrl.engine.delivery.servable", lambda model, work: model)
    policies = {name: reference(number) for name, number in (("a", 1.0), ("b", 1.5), ("c", 2.0))}
    host = PretendedHost(policies)
    settings = VllmSettings(dtype="float32", lora_rank=8)
    return host, Ladder(host, settings, tmp_path), policies


def weights(name: str, *, adapter_of: str | None = None) -> Weights:
    folder = Path(name) / "adapter" if adapter_of else None
    return Weights(Path(name), Path(name), f"sha256:{name}", folder, adapter_of and f"sha256:{adapter_of}")


def test_reload_is_used_where_there_is_no_adapter_and_requests_drain_first(world):
    host, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    delivery = ladder.deliver(weights("b"), policies["b"])
    assert (delivery.rung, delivery.difference, delivery.dropped) == ("reload", 0.0, ())
    assert host.calls == ["start", "drain", "reload", "resume"]
    assert ladder.unusable("lora", weights("b")) == "the policy has no adapter"
    assert ladder.unusable("transfer", weights("b")) == "no GPU"


def test_the_weight_transfer_protocol_comes_before_the_disk_where_it_is_to_be_had(world):
    host, ladder, policies = world
    host.transferable = True
    ladder.start(weights("a"), policies["a"])
    assert ladder.deliver(weights("b"), policies["b"]).rung == "transfer"


def test_an_adapter_comes_under_a_new_name_and_the_old_one_goes(world):
    host, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    first = ladder.deliver(weights("b", adapter_of="a"), policies["b"])
    name = ladder.model_name
    second = ladder.deliver(weights("c", adapter_of="a"), policies["c"])
    assert [first.rung, second.rung] == ["lora", "lora"]
    assert name == "policy-b"
    assert ladder.model_name == "policy-c"
    assert host.calls.count("add_adapter") == 2
    assert host.calls.count("remove_adapter") == 1


def test_a_policy_with_an_adapter_starts_from_its_base_with_the_adapter_on_top(world, monkeypatch):
    host, ladder, policies = world
    monkeypatch.setattr("dialrl.engine.delivery.policy_digest", lambda model: f"sha256:{model.name}")
    assert ladder.start(weights("b", adapter_of="a"), policies["b"], base=Path("a")).rung == "lora"
    assert (host.model, ladder.model_name) == (Path("a"), "policy-b")
    assert ladder.deliver(weights("c", adapter_of="a"), policies["c"]).rung == "lora"


def test_an_adapter_of_another_base_is_not_put_on_this_one(world):
    _, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    assert ladder.deliver(weights("c", adapter_of="b"), policies["c"]).rung == "reload"
    # From then on the served model is no longer the one that adapters of "a" belong to.
    assert ladder.deliver(weights("b", adapter_of="a"), policies["b"]).rung == "reload"
    assert ladder.dropped == {}


@pytest.mark.parametrize("fault", ["broken", "deaf"])
def test_a_rung_that_fails_or_changes_nothing_is_dropped_for_the_next_one(world, fault):
    host, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    getattr(host, fault).add("reload")
    delivery = ladder.deliver(weights("b"), policies["b"])
    assert delivery.rung == "restart"
    assert delivery.dropped[0][0] == "reload"
    assert ("broken" if fault == "broken" else "differ from the trainer's") in delivery.dropped[0][1]
    assert "reload dropped" in delivery.sentence()
    assert delivery.figures()["dropped"].keys() == {"reload"}
    assert not host.is_held
    before = len(host.calls)
    assert ladder.deliver(weights("c"), policies["c"]).rung == "restart"
    assert host.calls[before:] == ["stop", "start"]


def test_a_step_too_small_for_the_tolerance_must_still_arrive(world):
    host, ladder, policies = world
    policies["b"] = reference(1.0005)  # 0.0005 apart: within 1e-3
    ladder.start(weights("a"), policies["a"])
    host.deaf.add("reload")
    delivery = ladder.deliver(weights("b"), policies["b"])
    assert delivery.rung == "restart"
    assert "still those of the weights before" in delivery.dropped[0][1]


def test_equal_weights_are_not_taken_for_old_ones(world):
    _, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    assert ladder.deliver(weights("a"), replace(policies["a"])).rung == "reload"


def test_when_no_rung_is_left_every_reason_is_named(world):
    host, ladder, policies = world
    ladder.start(weights("a"), policies["a"])
    host.broken.add("reload")
    host.policies = {name: reference(9.0) for name in policies}
    with pytest.raises(EngineError, match=r"(?s)reload: reload is broken.*restart: its log-probs differ"):
        ladder.deliver(weights("b"), policies["b"])


def test_a_start_with_other_log_probs_than_the_weights_have_is_an_error(world):
    _, ladder, policies = world
    with pytest.raises(EngineError, match="differ from the trainer's"):
        ladder.start(weights("a"), policies["b"])


def test_only_allowed_rungs_are_used(world, tmp_path):
    host, _, policies = world
    ladder = Ladder(host, VllmSettings(dtype="float32", delivery=("restart",)), tmp_path)
    ladder.start(weights("a"), policies["a"])
    assert ladder.deliver(weights("b"), policies["b"]).rung == "restart"
    assert "not among" in ladder.unusable("reload", weights("b"))
    assert RUNGS == ("lora", "transfer", "reload", "restart")


def test_the_difference_is_a_mean_over_what_the_sampler_reports_and_no_number_is_infinite():
    held = Reference(((1,),), np.array([[-1.0, -2.0]], dtype=np.float32))
    assert held.difference([{0: -1.1, 1: -2.3}]) == pytest.approx(0.2)
    assert held.difference([{}]) == float("inf")
    assert held.difference([{0: float("nan")}]) == float("inf")
    assert held.moved_from(Reference(((1,),), np.array([[-1.5, -2.0]], dtype=np.float32))) == pytest.approx(0.25)


def test_a_delivery_says_what_it_took():
    delivery = Delivery("lora", "sha256:0123456789abcdef", 1.5e-6, 0.25)
    assert delivery.sentence() == (
        "weights sha256:0123456789ab delivered by lora in 0.2 s, mean |log-prob difference| 1.5e-06"
    )
    assert "not compared" in replace(delivery, difference=None).sentence()
