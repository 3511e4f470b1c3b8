"""What an interpreter's vLLM runs on, asked without loading it, and what it can therefore not do.

Not here: which interpreter that is (``vllm_settings``).
"""

import json
import subprocess
import sys
from pathlib import Path

from dialrl.engine.vllm_settings import VllmSettings
from dialrl.errors import EngineError, InputError, UsageError
from dialrl.json_file import read_object

_ASKED = (
    "import importlib.metadata as m, json;"
    "print(json.dumps([[str(d.name).lower(), d.version] for d in m.distributions() if str(d.name).startswith('vllm')]))"
)
_LEAST_TOKENS = 4096  # of one pass on a CPU


def runs_on_cpu(settings: VllmSettings) -> bool:
    """Whether the interpreter's vLLM is a build for CPUs. Raises EngineError for an interpreter that does not run."""
    command = [settings.interpreter or sys.executable, "-c", _ASKED]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 - no shell
    if asked.returncode:
        raise EngineError(f"The interpreter '{command[0]}' does not run: {asked.stderr.strip()[-300:]}")
    return any(name.endswith("cpu") or "cpu" in version for name, version in json.loads(asked.stdout))


def visible_devices(device: str, outer: str | None) -> dict[str, str]:
    """Environment of a server that may use ``device`` alone; ``outer``: this process's own CUDA_VISIBLE_DEVICES.

    "cuda:1" -> {"CUDA_VISIBLE_DEVICES": "1"}; "cuda:0,cuda:2" under an outer "4,5,6" -> "4,6"; "cuda", "cpu" -> {}.
    Raises UsageError for a device that the outer setting hides.
    """
    numbers = [part.strip().removeprefix("cuda:") for part in device.split(",")]
    if not all(number.isdigit() for number in numbers):
        return {}
    seen = [name.strip() for name in (outer or "").split(",") if name.strip()]
    hidden = [number for number in numbers if seen and int(number) >= len(seen)]
    if hidden:
        raise UsageError(f"rollout.device is '{device}', but CUDA_VISIBLE_DEVICES={outer} shows {len(seen)} devices.")
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[int(number)] if seen else number for number in numbers)}


def whole_prompt_tokens(model: Path, settings: VllmSettings) -> int:
    """Tokens of one pass that hold any prompt whole.

    vLLM 0.32 on a CPU ends ("CPU Generator does not use offset") when it reads a prompt of a request with a seed in
    pieces, and every request of ours has one: there prompts are read whole.
    """
    return max(context_limit(model, settings), _LEAST_TOKENS)


def context_limit(model: Path, settings: VllmSettings) -> int:
    """Longest context in tokens. Raises InputError when neither options nor configuration tell it."""
    configuration = read_object(model / "config.json")
    text = configuration.get("text_config") or configuration
    own = settings.max_model_len or text.get("max_position_embeddings")
    if not own:
        raise InputError(f"'{model}/config.json' has no max_position_embeddings; set engine_options.max_model_len.")
    return int(own)
