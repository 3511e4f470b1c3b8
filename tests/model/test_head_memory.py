"""The head's memory does not grow with the dialogue: full-vocabulary logits never exist (field case 20)."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dialrl.model.logprobs import HeadSettings, head_logprobs

VOCABULARY, HIDDEN = 262_144, 4


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that live at once inside the block, storage by storage."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def peak_bytes(tokens: int, chunk: int | None) -> int:
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    targets = torch.arange(tokens)
    with LiveBytes() as memory:
        result = head_logprobs(head, hidden, targets, HeadSettings(chunk_tokens=chunk))
        (result.logprobs_T.sum()).backward()
    return memory.peak


def test_a_dialogue_twice_as_long_takes_no_more_than_a_tenth_more() -> None:
    short, long = peak_bytes(32, chunk=8), peak_bytes(64, chunk=8)
    assert long < 1.1 * short
    assert long < 64 * VOCABULARY * 4  # the logits of all 64 tokens alone, 67 MB


def test_without_chunks_it_would_double() -> None:
    assert peak_bytes(128, chunk=256) > 1.8 * peak_bytes(64, chunk=256)
