"""A server as a process of ours: started under a guard, waited for until it answers, ended with all its children.

Its output goes to a log, whose end stands in the error when it dies. Not here: what is run (``vllm_server``), requests.
"""

import atexit
import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from dialrl.endpoint.failure import redacted
from dialrl.engine import vllm_guard
from dialrl.errors import EngineError

_LOOK_SECONDS = 0.25
_TAIL_LINES = 25
_END_SECONDS = 30.0


def work_folder() -> Path:
    """A folder for a server's log and copies, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="dialrl-vllm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One running server. ``secret``: a key that must not be quoted from the log."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, *, secret: str | None = None
    ) -> None:
        self.log, self._secret = log, secret
        log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-I", vllm_guard.__file__, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._start_of_log = output.tell()
            self._guard = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                guard,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        atexit.register(self.stop)

    @property
    def is_alive(self) -> bool:
        return self._guard.poll() is None

    def wait_until(self, url: str, timeout_seconds: float) -> None:
        """Return once ``url`` answers 200. Raises EngineError with the log's end: the process ended, or time is up."""
        deadline = time.monotonic() + timeout_seconds
        while not answers(url):
            if not self.is_alive:
                raise self.death("while it started")
            if time.monotonic() > deadline:
                self.stop()
                raise EngineError(
                    f"The vLLM server did not answer at {url} within {timeout_seconds:g} s"
                    f" (engine_options.start_timeout_seconds) and was stopped. The end of its log:\n{self.tail()}"
                )
            time.sleep(_LOOK_SECONDS)

    def death(self, when: str) -> EngineError:
        """The error for a server that is gone."""
        return EngineError(
            f"The vLLM server ended {when} (exit code {self._guard.poll()}). The end of its log (engine_options.log"
            f" keeps it):\n{self.tail()}"
        )

    def tail(self) -> str:
        """The last lines of this server's log."""
        with self.log.open("rb") as stream:
            stream.seek(self._start_of_log)
            lines = stream.read().decode("utf-8", "replace").splitlines()
        return redacted("\n".join(lines[-_TAIL_LINES:]) or "(empty)", self._secret)

    def stop(self) -> None:
        """End the server and all its children; returns when they are gone. Twice is once."""
        atexit.unregister(self.stop)
        if self._guard.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._guard.send_signal(signal.SIGTERM)
        try:
            self._guard.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()


def answers(url: str) -> bool:
    """Whether ``url`` gives status 200. No proxy: the server is on this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return False
