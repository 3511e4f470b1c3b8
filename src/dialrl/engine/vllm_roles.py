"""A vLLM for other roles than the policy: ``vllm:DIRECTORY`` among a stage's addresses starts one.

It serves the directory under its own name and under the name as written, once for a process and all roles that name it,
and ends with the process. Not here: the policy's server (``vllm``), models in this process (``serving``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialrl.endpoint.served import SCHEME, announce
from dialrl.engine.vllm import dtype_of
from dialrl.engine.vllm_process import work_folder
from dialrl.engine.vllm_server import ServerHost
from dialrl.engine.vllm_settings import SERVED_NAME, vllm_settings
from dialrl.model.find import find_policy
from dialrl.model.loading import model_directory

POLICY = SCHEME + SERVED_NAME


def serve_role(address: str, options: Mapping[str, Any]) -> ServerHost:
    """Start the server that ``address`` names; ``options`` as ``engine_options`` of the engine vllm.

    Raises MissingInputError for a model that does not exist, MissingExtraError (what to install), EngineError.
    """
    directory = address.removeprefix(SCHEME)
    model = model_directory(find_policy(directory))
    settings = vllm_settings(options)
    settings = settings.updated(dtype=dtype_of(model, settings))
    host = ServerHost(
        settings, work_folder() / "server.log", names=tuple(dict.fromkeys((Path(directory).name, directory)))
    )
    host.start(model)
    announce(directory, host.url)
    return host
