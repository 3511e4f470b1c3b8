"""``engine_options`` of the engine ``vllm``: which interpreter runs it, how it serves, how it takes new weights.

Keys are never options: the server takes the key it asks for from the environment variable ``VLLM_API_KEY``, which
clients send. Not here: the server's command line (``vllm_server``), the ladder (``delivery``).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from dialrl.config import StageConfig, operational, semantic, validated
from dialrl.endpoint.served import OWN_SERVER_KEY

Rung = Literal["lora", "transfer", "reload", "restart"]
RUNGS: tuple[Rung, ...] = ("lora", "transfer", "reload", "restart")
SERVED_NAME = "policy"
PYTHON_VARIABLE = "DIALRL_VLLM_PYTHON"
KEY_VARIABLE = OWN_SERVER_KEY
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_OURS = ("--model", "--served-model-name", "--host", "--port", "--api-key", "--logprobs-mode", "--generation-config")


class VllmSettings(StageConfig):
    """How vLLM is run. ``mode`` "server": a process of its own; "in-process": inside this interpreter."""

    mode: Literal["server", "in-process"] = operational("server", help="A server of its own, or inside this process.")
    python: str | None = operational(
        None, help=f"Interpreter with vllm; none: the variable {PYTHON_VARIABLE}, else this interpreter."
    )
    port: int = operational(0, help="Port of the server on the loopback interface; 0: a free one.", ge=0, le=65535)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = semantic("auto", help="Precision of the weights.")
    max_model_len: int | None = semantic(None, help="Longest context in tokens; none: the model's.", ge=1)
    lora_rank: int | None = semantic(None, help="Largest rank of adapters that can be delivered; none: no adapters.")
    extra_arguments: tuple[str, ...] = semantic((), help="Further arguments of the server, or engine arguments.")
    environment: dict[str, str] = operational({}, help="Further variables of the server's environment; no secrets.")
    delivery: tuple[Rung, ...] = operational(RUNGS, help="Rungs of the delivery ladder that may be used.")
    tolerance: float | None = operational(
        None, help="Largest mean |log-prob difference| to the trainer; none: 1e-3 in float32, else 0.05.", gt=0
    )
    reference_device: str = operational(
        "cpu", help="Where a policy is loaded for the probe, unless the trainer has it."
    )
    trial_bytes: int = operational(
        4 * 2**30, help="Models up to this size have each rung tried with changed weights before training.", ge=0
    )
    start_timeout_seconds: float = operational(900.0, help="Time until the server must answer.", gt=0)
    drain_timeout_seconds: float = operational(600.0, help="Time for running requests before a delivery.", gt=0)
    log: Path | None = operational(None, help="The server's log; none: a temporary file, whose end errors quote.")

    @field_validator("extra_arguments")
    @classmethod
    def _leave_ours_alone(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for argument in value:
            name = argument.split("=", 1)[0].replace("_", "-")
            if name == "--api-key":
                raise ValueError(f"a key never stands in an argument; set the environment variable {KEY_VARIABLE}")
            if name in _OURS:
                raise ValueError(
                    f"'{name}' is set by dialrl itself (token ids and log-probs depend on it); leave it out"
                )
        return value

    @field_validator("environment")
    @classmethod
    def _hold_no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if _SECRET.search(name):
                raise ValueError(
                    f"'{name}' looks like a secret; secrets are inherited from the environment, never options"
                )
        return value

    @field_validator("delivery")
    @classmethod
    def _keep_the_order(cls, value: tuple[Rung, ...]) -> tuple[Rung, ...]:
        if not value:
            raise ValueError(f"no rung is left; name at least one of {', '.join(RUNGS)}")
        return tuple(rung for rung in RUNGS if rung in value)

    @property
    def interpreter(self) -> str | None:
        """The interpreter that was named; None: this one."""
        return self.python or os.environ.get(PYTHON_VARIABLE) or None

    def tolerance_for(self, dtype: str) -> float:
        """The probe's bound for weights served in ``dtype``: rounding alone moves log-probs of half precision."""
        return self.tolerance if self.tolerance is not None else (1e-3 if dtype == "float32" else 0.05)


def vllm_settings(options: Mapping[str, Any]) -> VllmSettings:
    """Checked ``engine_options``. Raises UsageError naming a wrong key."""
    return validated(VllmSettings, options, where="engine_options")
