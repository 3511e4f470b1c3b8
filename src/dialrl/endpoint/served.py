"""Addresses of servers that this process started itself: ``vllm:policy`` in ``base_urls``, known by name.

So one vLLM that a run starts can play other roles too, though its port is not known beforehand. Not here: starting one.
"""

from dialrl.errors import UsageError

SCHEME = "vllm:"
OWN_SERVER_KEY = "VLLM_API_KEY"  # the environment variable that vLLM and its clients take the key from
_ADDRESSES: dict[str, str] = {}


def announce(name: str, url: str) -> None:
    """From now on ``vllm:NAME`` is ``url``."""
    _ADDRESSES[SCHEME + name] = url


def withdraw(name: str) -> None:
    """The server is gone."""
    _ADDRESSES.pop(SCHEME + name, None)


def resolved(url: str) -> str:
    """The address behind ``vllm:NAME``; any other as it stands. Raises UsageError when no such server runs here."""
    if not url.startswith(SCHEME):
        return url
    if url not in _ADDRESSES:
        known = ", ".join(_ADDRESSES) or "none"
        raise UsageError(
            f"The address '{url}' names a vLLM server of this very process; running are: {known}. '{SCHEME}policy' is"
            " there while the engine 'vllm' is open in mode 'server' (dialrl rollout or train with --engine vllm);"
            f" '{SCHEME}DIRECTORY' starts one for a model directory."
        )
    return _ADDRESSES[url]
