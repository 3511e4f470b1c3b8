"""Addresses of servers that this process started itself: ``vllm:policy`` in ``base_urls``, known by name.

So one vLLM that a run starts can play other roles too, though its port is not known beforehand; ``hf:DIRECTORY`` is a
model that the run loads itself. Not here: starting one.
"""

from dialrl.errors import UsageError

SCHEME = "vllm:"
HF_SCHEME = "hf:"
OWN_SERVER_KEY = "VLLM_API_KEY"  # the environment variable that vLLM and its clients take the key from
_ADDRESSES: dict[str, str] = {}


def announce(name: str, url: str, *, scheme: str = SCHEME) -> None:
    """From now on ``vllm:NAME`` (or another scheme's) is ``url``."""
    _ADDRESSES[scheme + name] = url


def is_own(url: str) -> bool:
    """Whether an address names a server of this process, running or not."""
    return url.startswith((SCHEME, HF_SCHEME))


def is_announced(url: str) -> bool:
    """Whether that server runs."""
    return url in _ADDRESSES


def withdraw(name: str) -> None:
    """The server is gone."""
    _ADDRESSES.pop(SCHEME + name, None)


def resolved(url: str) -> str:
    """The address behind ``vllm:NAME`` or ``hf:DIRECTORY``; any other as it stands.

    Raises UsageError when no such server runs here.
    """
    if not is_own(url):
        return url
    if url not in _ADDRESSES and url.startswith(HF_SCHEME):
        raise UsageError(
            f"The model '{url}' is loaded by dialrl rollout, judge, evaluate and train; this command loads none. Serve"
            f" it: dialrl serve --policy {url.removeprefix(HF_SCHEME)}"
        )
    if url not in _ADDRESSES:
        known = ", ".join(_ADDRESSES) or "none"
        raise UsageError(
            f"The address '{url}' names a vLLM server of this very process; running are: {known}. '{SCHEME}policy' is"
            " there while the engine 'vllm' is open in mode 'server' (dialrl rollout or train with --engine vllm);"
            f" '{SCHEME}DIRECTORY' starts one for a model directory."
        )
    return _ADDRESSES[url]
