"""What the doctor makes of a vLLM's interpreter, log-probs and rungs; the vLLM itself is tried in tests/vllm."""

import sys

import pytest

from dialrl.doctor import vllm
from dialrl.doctor.stage import subject_of
from dialrl.doctor.subject import Subject
from dialrl.engine.delivery_probe import SamplerProbe
from dialrl.engine.delivery_trial import DeliveryCheck, RungTrial
from dialrl.engine.vllm_settings import VllmSettings
from dialrl.errors import EngineError, UsageError

HERE = VllmSettings(python=sys.executable)


def checked(mean=1e-6, works=(None, False, True)):
    reasons = {None: "GPUs only", False: "the log-probs are not the trainer's", True: None}
    rungs = zip(("transfer", "reload", "restart"), works, strict=True)
    trials = tuple(RungTrial(rung, work, reasons[work], 1e-6 if work else None) for rung, work in rungs)
    return DeliveryCheck(SamplerProbe(mean, 2 * mean, 40), trials)


def examined(monkeypatch, result, options=None):
    def check(policy, engine_options, **_):
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(vllm, "check_delivery", check)
    monkeypatch.setattr(vllm, "interpreter", lambda settings: vllm.Check("Sampling", "vllm", "ok", "vllm 1"))
    return {found.name: found for found in vllm.examine_vllm(Subject(), "policy", options or {})}


def test_every_rung_has_a_line_and_the_best_one_is_named(monkeypatch):
    found = examined(monkeypatch, checked())
    assert {name: check.status for name, check in found.items()} == {
        "vllm": "ok",
        "log-probs": "ok",
        "delivery": "ok",
        "transfer": "not applicable",
        "reload": "warning",
        "restart": "ok",
    }
    assert "by restart" in found["delivery"].found
    assert "the log-probs are not the trainer's" in found["reload"].found


def test_no_rung_at_all_fails(monkeypatch):
    assert examined(monkeypatch, checked(works=(None, False, False)))["delivery"].status == "failed"


def test_a_sampler_that_differs_is_a_warning_with_the_bound(monkeypatch):
    found = examined(monkeypatch, checked(mean=0.2))["log-probs"]
    assert (found.status, found.details["bound"]) == ("warning", 0.05)
    assert examined(monkeypatch, checked(mean=0.01), {"dtype": "float32"})["log-probs"].status == "warning"
    assert examined(monkeypatch, checked(mean=0.01), {"dtype": "bfloat16"})["log-probs"].status == "ok"


@pytest.mark.parametrize("fault", [EngineError("vLLM did not start: out of memory"), UsageError("no such option")])
def test_a_vllm_that_does_not_start_is_a_finding(monkeypatch, fault):
    found = examined(monkeypatch, fault)
    assert (found["vllm"].status, found["vllm"].found) == ("failed", str(fault))


def test_of_a_long_log_the_first_and_the_last_line_are_shown_and_all_of_it_is_kept(monkeypatch):
    fault = EngineError("It ended:\n" + "\n".join(f"  line {number}" for number in range(30)))
    found = examined(monkeypatch, fault)["vllm"]
    assert (found.found, found.details["error"]) == ("It ended: ... line 29", str(fault))


def test_an_interpreter_without_vllm_or_that_is_none_fails_with_what_to_do(monkeypatch):
    monkeypatch.setattr(vllm, "_ASK_VERSION", "pass")
    assert vllm.interpreter(HERE).status == "failed"
    assert "pip install 'dialrl[vllm]'" in vllm.interpreter(HERE).advice
    assert "does not run" in vllm.interpreter(VllmSettings(python="no/such/python")).found
    monkeypatch.setattr(vllm, "_ASK_VERSION", "print('vllm', '9.9')")
    assert vllm.interpreter(HERE).found == f"vllm 9.9 in '{sys.executable}'"


def test_an_engine_that_there_is_none_of_is_a_wrong_use():
    with pytest.raises(UsageError, match="Did you mean 'vllm'"):
        subject_of(engine="vlm")
    assert subject_of(engine="vllm").engine == "vllm"
