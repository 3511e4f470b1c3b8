"""Tests against a real vLLM, in an interpreter that ``DIALRL_VLLM_PYTHON`` names: ``make test-vllm``."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vllm.models import engine_options, tiny

# Without that interpreter there is nothing to test against; make says so, and what to do.
collect_ignore_glob = [] if os.environ.get("DIALRL_VLLM_PYTHON") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _dialrl_alone_starts_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Answers of other runs are none of ours."""
    before = os.environ.get("DIALRL_CACHE")
    os.environ["DIALRL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["DIALRL_CACHE"]
    else:
        os.environ["DIALRL_CACHE"] = before


@pytest.fixture(scope="session", params=[True, False], ids=["tied", "untied"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 whose head is its embedding, and one whose is not."""
    return tiny(tmp_path_factory.mktemp("policy"), tied=request.param)


@pytest.fixture(scope="session")
def engine(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of ours with room for adapters."""
    from dialrl.engine.vllm import open_vllm
    from dialrl.engine.vllm_settings import vllm_settings

    log = tmp_path_factory.mktemp("log") / "server.log"
    opened = open_vllm(policy, vllm_settings(engine_options(log=log, lora_rank=4)))
    yield opened
    opened.close()
