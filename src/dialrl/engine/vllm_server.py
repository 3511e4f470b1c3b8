"""vLLM as a server of ours: its command line, its environment, and what it can be told while it runs.

It listens on the loopback interface only. The routes that change weights are vLLM's development routes, which ask for
no key: whoever can reach the port on this machine can use them. Not here: drawing replies (``vllm``).
"""

import http.client
import json
import os
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dialrl.engine.vllm_host import HostError
from dialrl.engine.vllm_platform import runs_on_cpu, whole_prompt_tokens
from dialrl.engine.vllm_process import ServerProcess, free_port
from dialrl.engine.vllm_settings import KEY_VARIABLE, PYTHON_VARIABLE, SERVED_NAME, VllmSettings
from dialrl.engine.vllm_transfer import SERVER_ARGUMENTS, cannot_transfer, send_weights
from dialrl.errors import MissingExtraError

ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
PROBED_TOKENS = 20
PRIVATE = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}  # nothing is reported to anybody
# What a director's tools and a judge's JSON need. White space between parts is switched off: a model that lost its way
# writes it until the answer is cut. Of vLLM's backends only "guidance" keeps control characters out of strings whose
# length is bounded; it knows no structural tags, so calls of tools are made by JSON schema too.
_OTHER_ROLES = (
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    "--structured-outputs-config", '{"backend": "guidance", "disable_any_whitespace": true}',
)  # fmt: skip
_BY_SCHEMA = {"VLLM_ENFORCE_STRICT_TOOL_CALLING": "0"}
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", **PRIVATE}


def server_command(
    settings: VllmSettings, model: Path, port: int, *, on_cpu: bool = False, names: Sequence[str] = (SERVED_NAME,)
) -> list[str]:
    """The command line. Sampling defaults of the model's own generation_config.json are left out: a top-p or a
    repetition penalty from there would silently change the distribution that replies are drawn from."""
    command = [
        settings.interpreter or sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(model), "--served-model-name", *names, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", settings.dtype, "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
        "--enable-prefix-caching", "--enable-prompt-tokens-details", *_OTHER_ROLES,
    ]  # fmt: skip
    if settings.max_model_len is not None:
        command += ["--max-model-len", str(settings.max_model_len)]
    if on_cpu:
        tokens = str(whole_prompt_tokens(model, settings))
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", tokens]
    if settings.lora_rank is not None:
        command += ["--enable-lora", "--max-lora-rank", str(fitting_rank(settings.lora_rank))]
    if "transfer" in settings.delivery and cannot_transfer() is None:
        command += SERVER_ARGUMENTS
    return [*command, *settings.extra_arguments]


def server_environment(settings: VllmSettings) -> dict[str, str]:
    """This process's environment, what makes weights deliverable, and what the options add."""
    adapters = {} if settings.lora_rank is None else {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    return {**_BY_SCHEMA, **os.environ, **_ENVIRONMENT, **adapters, **settings.environment}


def fitting_rank(rank: int) -> int:
    """The smallest rank vLLM can be started with that holds adapters of ``rank``. 12 -> 16."""
    return next((known for known in ADAPTER_RANKS if known >= rank), rank)


class ServerHost:
    """One vLLM server. ``url``: its address up to and with /v1; ``names``: what its model is called in requests."""

    def __init__(self, settings: VllmSettings, log: Path, *, names: Sequence[str] = (SERVED_NAME,)) -> None:
        self._settings, self._names = settings, names
        self._log = settings.log or log
        self._port = settings.port
        self.process: ServerProcess | None = None
        self.model: Path | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self, model: Path) -> None:
        settings = self._settings
        check_interpreter(settings)
        self._port = settings.port or self._port or free_port()
        command = server_command(settings, model, self._port, on_cpu=runs_on_cpu(settings), names=self._names)
        key = os.environ.get(KEY_VARIABLE)
        self.process = ServerProcess(command, server_environment(settings), self._log, secret=key)
        self.process.wait_until(f"http://127.0.0.1:{self._port}/health", settings.start_timeout_seconds)
        self.model = model

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
        self.process, self.model = None, None

    def drain(self) -> None:
        self._post("/pause?mode=wait", timeout_seconds=self._settings.drain_timeout_seconds)

    def resume(self) -> None:
        self._post("/resume")

    def reload(self, model: Path) -> None:
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(model)}})
        self.model = model
        self._drop_prefixes()

    def transfer(self, model: Path) -> None:
        workers = self._get("/get_world_size")["world_size"]
        send_weights(model, self._root, free_port(), workers, self._settings.start_timeout_seconds)
        self.model = model
        self._drop_prefixes()

    def cannot_transfer(self) -> str | None:
        return cannot_transfer()

    def _drop_prefixes(self) -> None:
        answer = self._post("/reset_prefix_cache")
        if not answer.get("success", False):
            raise HostError("vLLM could not drop its cached prefixes, which hold values of the old weights")

    def add_adapter(self, name: str, folder: Path) -> None:
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})

    def remove_adapter(self, name: str) -> None:
        self._post("/v1/unload_lora_adapter", {"lora_name": name})

    def next_logprobs(self, prompts: Sequence[Sequence[int]], model_name: str) -> list[dict[int, float]]:
        return [self._next_logprobs(prompt, model_name) for prompt in prompts]

    def _next_logprobs(self, prompt: Sequence[int], model_name: str) -> dict[int, float]:
        body = {
            "model": model_name, "prompt": list(prompt), "max_tokens": 1, "temperature": 1.0, "seed": 0,
            "logprobs": PROBED_TOKENS, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        answer = self._post("/v1/completions", body)
        try:
            top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
            return {int(token.removeprefix("token_id:")): float(value) for token, value in top.items()}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise HostError("vLLM's answer to a probe holds no top_logprobs by token id") from None

    @property
    def _root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _get(self, path: str) -> dict[str, Any]:
        return self._request(path, None, "GET", 60.0)

    def _post(self, path: str, body: Mapping[str, Any] | None = None, timeout_seconds: float = 600.0) -> dict[str, Any]:
        return self._request(path, json.dumps(body or {}).encode(), "POST", timeout_seconds)

    def _request(self, path: str, content: bytes | None, method: str, timeout_seconds: float) -> dict[str, Any]:
        """The JSON answer, empty where there is none. Raises HostError with what the server said."""
        key = os.environ.get(KEY_VARIABLE)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(  # noqa: S310 - always http on the loopback interface
            self._root + path, data=content, headers=headers, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout_seconds) as response:
                received = response.read()
        except urllib.error.HTTPError as error:
            raise HostError(
                f"vLLM answered {error.code} to {path}: {error.read(300).decode('utf-8', 'replace')}"
            ) from None
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            raise HostError(f"vLLM did not answer {path}: {error}") from None
        try:
            answer = json.loads(received or b"{}")
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}


def check_interpreter(settings: VllmSettings) -> None:
    """Raise MissingExtraError, naming what to install, when there is no interpreter with vllm to run."""
    from importlib.util import find_spec

    named = settings.interpreter
    if named is None and find_spec("vllm") is None:
        raise MissingExtraError(
            "The engine 'vllm' needs an interpreter that has the package 'vllm': this one has not. Install it here with"
            " pip install 'dialrl[vllm]' (a GPU), or make an environment of its own with `make vllm-env` (CPU) and name"
            f" its interpreter: engine_options.python=.venv-vllm/bin/python, or the variable {PYTHON_VARIABLE}."
        )
    if named is not None and shutil.which(named) is None:
        raise MissingExtraError(
            f"The engine 'vllm' was to run with the interpreter '{named}' (engine_options.python or {PYTHON_VARIABLE}),"
            " which does not exist. `make vllm-env` makes .venv-vllm/bin/python."
        )
