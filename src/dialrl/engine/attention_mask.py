"""Additive attention masks over a ``RowCache``, one for each kind of attention layer a model has.

Not here: the cache. Layers that keep no key and value a position (recurrent, linear) are refused.
"""

from typing import Any

import torch

from dialrl.errors import UsageError

_FULL, _SLIDING = "full_attention", "sliding_attention"


class AttentionMasks:
    """Masks for a model's configuration. Raises UsageError for attention layers that a ``RowCache`` cannot serve."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self._dtype = dtype
        self._window = getattr(text, "sliding_window", None)
        kinds = getattr(text, "layer_types", None) or [_SLIDING if self._window else _FULL]
        self._kinds = sorted(set(kinds))
        unknown = [kind for kind in self._kinds if kind not in (_FULL, _SLIDING)]
        if unknown:
            raise UsageError(
                f"The embedded engine 'hf' cannot sample from a model with layers of the kind {unknown}; it knows"
                f" {_FULL} and {_SLIDING}. Use another engine."
            )

    def of(self, positions_RT: torch.Tensor, columns_RT: torch.Tensor, width: int) -> Any:
        """Mask (R, 1, T, width): 0 where a token may attend, -inf elsewhere; by layer kind where a model has two.

        Column c holds position c - 1. Padding (column 0) may attend to everything, lest a row of -inf make NaN.
        """
        masks = {kind: self._of_kind(kind, positions_RT, columns_RT, width) for kind in self._kinds}
        return masks if len(masks) > 1 else masks[self._kinds[0]]

    def _of_kind(self, kind: str, positions_RT: torch.Tensor, columns_RT: torch.Tensor, width: int) -> torch.Tensor:
        stored_C = torch.arange(-1, width - 1, device=positions_RT.device)
        own_RT1 = positions_RT.unsqueeze(-1)
        allowed = (stored_C <= own_RT1) & (stored_C >= 0)
        if kind == _SLIDING:
            allowed &= stored_C > own_RT1 - self._window
        allowed |= (columns_RT == 0).unsqueeze(-1)
        mask = torch.zeros(allowed.shape, dtype=self._dtype, device=allowed.device)
        return mask.masked_fill_(~allowed, float("-inf")).unsqueeze(1)
