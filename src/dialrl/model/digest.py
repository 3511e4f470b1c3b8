"""The policy's digest: a name for its weights and configuration, equal for equal weights however they were stored.

Names, types, shapes and bytes of all tensors, in the order of their names, and the configuration without what does not
change the function. File names, shards and metadata do not count. Read through a memory map, no tensor library needed.
Not here: the manifest that records it.
"""

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dialrl.errors import InputError
from dialrl.json_file import read_object

_HEADER_LENGTH_BYTES = 8
_HASH_THREADS = 4
# What a library writes about itself or the moment of saving; none of it changes the model's function.
_VOLATILE_KEYS = frozenset({"transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache"})


def policy_digest(directory: Path) -> str:
    """``"sha256:..."`` over the tensors and the configuration in a model directory (the one with ``config.json``).

    Raises InputError for a directory without safetensors, or with a file that is not one.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise InputError(f"'{directory}' holds no .safetensors file; a policy's digest is taken over its tensors.")
    whole = hashlib.sha256(_configuration(directory / "config.json"))
    entries = [entry for file in files for entry in _tensor_digests(file)]
    for name, digest in sorted(entries):
        whole.update(f"{len(name)}:{name}".encode() + digest)
    return f"sha256:{whole.hexdigest()}"


def _configuration(file: Path) -> bytes:
    remedy = "Expected a model directory with its configuration: save the model again."
    return json.dumps(_stable(read_object(file, remedy=remedy)), sort_keys=True).encode()


def _stable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _stable(item) for key, item in value.items() if key not in _VOLATILE_KEYS}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _tensor_digests(file: Path) -> Iterator[tuple[str, bytes]]:
    if not file.stat().st_size:
        raise InputError(f"'{file}' is empty. Save the model again.")
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        header, start = _header(file, mapped)
        view = memoryview(mapped)

        def digest(name: str) -> tuple[str, bytes]:
            entry = header[name]
            first, last = entry["data_offsets"]
            about = json.dumps([entry["dtype"], entry["shape"]]).encode()
            with view[start + first : start + last] as data:
                return name, hashlib.sha256(hashlib.sha256(about).digest() + hashlib.sha256(data).digest()).digest()

        with view, ThreadPoolExecutor(_HASH_THREADS) as threads:  # hashing releases the interpreter lock
            yield from threads.map(digest, [name for name in header if name != "__metadata__"])


def _header(file: Path, mapped: mmap.mmap) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(mapped[:_HEADER_LENGTH_BYTES], "little")
    start = _HEADER_LENGTH_BYTES + length
    try:
        header = json.loads(mapped[_HEADER_LENGTH_BYTES:start])
    except ValueError:
        header = None
    if not isinstance(header, dict) or start > len(mapped):
        raise InputError(f"'{file}' is not a whole safetensors file: its header cannot be read. Save the model again.")
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    expected = start + max(ends, default=0)
    if expected > len(mapped):
        raise InputError(
            f"'{file}' is cut short: {len(mapped)} bytes, its header names {expected}. Save the model again."
        )
    return header, start
