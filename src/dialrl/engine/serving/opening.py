"""Opens a served model: by ``dialrl serve``, or for a run whose addresses say ``hf:DIRECTORY``.

A directory named so is loaded once in this process, however many roles use it, and reached over the loopback interface
like any other endpoint. It lives until the process ends. Not here: what is served (``model``), the wire (``server``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dialrl.endpoint.served import HF_SCHEME, SCHEME, announce, is_announced
from dialrl.endpoint.settings import EndpointSettings
from dialrl.engine.serving.config import ServeConfig
from dialrl.engine.vllm_roles import POLICY, serve_role
from dialrl.errors import UsageError, missing_extra
from dialrl.model.find import find_policy

if TYPE_CHECKING:
    from dialrl.engine.serving.server import ModelServer


def open_server(model: str | Path, config: ServeConfig) -> "ModelServer":
    """A server that listens already. Raises UsageError for a port that is taken, and what loading raises."""
    try:
        from dialrl.engine.serving.model import ServedModel
        from dialrl.engine.serving.server import ModelServer, Service
    except ModuleNotFoundError as error:
        raise missing_extra("train", error.name or "torch") from error
    from dialrl.model.loading import LoadingSettings

    place = find_policy(model)
    settings = LoadingSettings(device=config.device, precision=config.precision)
    served = ServedModel.open(place, settings, config.template_options)
    names = (config.name,) if config.name else (Path(str(model)).name, str(model))
    try:
        return ModelServer(Service(served, tuple(dict.fromkeys(names)), config.batch), config.port)
    except OSError as error:
        raise UsageError(
            f"Port {config.port} cannot be used ({error.strerror}). Name another with --port, or 0 for a free one."
        ) from error


def serve_named(endpoints: Mapping[str, EndpointSettings], *, device: str = "cpu") -> None:
    """Start what addresses ``hf:DIRECTORY`` and ``vllm:DIRECTORY`` among ``endpoints`` name, unless it runs already."""
    for endpoint in endpoints.values():
        for address in endpoint.base_urls:
            if is_announced(address):
                continue
            if address.startswith(SCHEME) and address != POLICY:
                serve_role(address, endpoint.server)
            if address.startswith(HF_SCHEME):
                server = open_server(address.removeprefix(HF_SCHEME), ServeConfig(port=0, device=device))
                announce(address.removeprefix(HF_SCHEME), server.start().url, scheme=HF_SCHEME)
