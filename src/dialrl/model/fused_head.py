"""Log-probs and entropy of a linear head as one operation with its own backward pass: few passes over the logits.

Head and softmax run over blocks of tokens, in place, one exponential a logit. When all tokens fit in one chunk, their
probabilities are kept, and the backward pass turns them into the gradient of the logits in place; else they are
computed again there, block by block. Autograd takes four such tables and twice the passes for the same formula.
Not here: the size of a chunk (``logprobs``); an entropy that has a gradient of its own.
"""

from collections.abc import Iterator
from typing import Any

import torch

BLOCK_BYTES = {"cpu": 2**26, "cuda": 2**28}
_CACHE_BYTES = 2**20  # elementwise work on a CPU stays in the cache of one core


class FusedHead(torch.autograd.Function):  # type: ignore[misc]
    """``apply(hidden_TH, weight_VH, targets_T, temperature, chunk_tokens)`` gives log-probs (T,) and entropies (T,).

    Matrix products are in the type of autocast, or of ``hidden_TH``; the softmax is at least in float32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_TH: torch.Tensor, weight_VH: torch.Tensor, targets_T: torch.Tensor, temperature: float,
        chunk_tokens: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        device = hidden_TH.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_TH.dtype
        with torch.autocast(device, enabled=False):
            head = _Head(weight_VH.to(kind), temperature, chunk_tokens)
            inputs = hidden_TH.to(kind)
            keep = len(targets_T) <= chunk_tokens and any(ctx.needs_input_grad)
            kept = head.table(len(targets_T)) if keep else None
            spare = head.table(head.block if kept is None else 0)
            logprobs_T, entropy_T = (hidden_TH.new_empty(len(targets_T), dtype=head.wide) for _ in range(2))
            for rows in head.blocks(len(targets_T)):
                table = spare[: rows.stop - rows.start] if kept is None else kept[rows]
                head.logits(inputs[rows], table)
                logprobs_T[rows], entropy_T[rows] = _normalised(table, targets_T[rows], keep=keep)
        ctx.head, ctx.kept, ctx.kinds = head, kept, (hidden_TH.dtype, weight_VH.dtype)
        ctx.save_for_backward(inputs, targets_T)
        ctx.mark_non_differentiable(entropy_T)
        return logprobs_T, entropy_T

    @staticmethod
    def backward(ctx: Any, gradient_T: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, targets_T = ctx.saved_tensors
        head, kept = ctx.head, ctx.kept
        ctx.kept = None  # it is about to become a gradient; a second backward pass computes it again
        spare = head.table(head.block if kept is None else 0)
        of_hidden = torch.empty_like(inputs) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(head.weight_VH, dtype=ctx.kinds[1]) if ctx.needs_input_grad[1] else None
        for rows in head.blocks(len(targets_T)):
            if kept is None:
                table = spare[: rows.stop - rows.start]
                head.logits(inputs[rows], table)
                _normalised(table, targets_T[rows], keep=True)
            else:
                table = kept[rows]
            scaled = (gradient_T[rows] / head.temperature).to(head.wide).unsqueeze(-1)
            table.mul_(-scaled).scatter_add_(-1, targets_T[rows].unsqueeze(-1), scaled)
            head.backward(table, inputs[rows], None if of_hidden is None else of_hidden[rows], of_weight)
        return (None if of_hidden is None else of_hidden.to(ctx.kinds[0])), of_weight, None, None, None


class _Head:
    """The linear map and the tables it fills. ``wide``: the softmax's type, that of products or at least float32."""

    def __init__(self, weight_VH: torch.Tensor, temperature: float, chunk_tokens: int) -> None:
        self.weight_VH, self.temperature = weight_VH, temperature
        self.wide = torch.promote_types(weight_VH.dtype, torch.float32)
        row_bytes = weight_VH.shape[0] * self.wide.itemsize
        self.block = max(1, min(chunk_tokens, BLOCK_BYTES.get(weight_VH.device.type, 2**28) // row_bytes))

    def table(self, rows: int) -> torch.Tensor:
        return self.weight_VH.new_empty(rows, self.weight_VH.shape[0], dtype=self.wide)

    def blocks(self, tokens: int) -> Iterator[slice]:
        for start in range(0, tokens, self.block):
            yield slice(start, min(start + self.block, tokens))

    def logits(self, inputs_TH: torch.Tensor, table_TV: torch.Tensor) -> None:
        """Logits, divided by the temperature, into ``table_TV``."""
        if self.weight_VH.dtype == self.wide:
            torch.mm(inputs_TH, self.weight_VH.T, out=table_TV)
        else:
            table_TV.copy_(torch.mm(inputs_TH, self.weight_VH.T))
        if self.temperature != 1.0:
            table_TV.div_(self.temperature)

    def backward(
        self, gradient_TV: torch.Tensor, inputs_TH: torch.Tensor, of_hidden: torch.Tensor | None,
        of_weight: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """From the gradient of the logits those of hidden states (written) and weight (added)."""
        gradient_TV = gradient_TV.to(self.weight_VH.dtype)
        if of_hidden is not None:
            torch.mm(gradient_TV, self.weight_VH, out=of_hidden)
        if of_weight is not None and of_weight.dtype == gradient_TV.dtype:
            of_weight.addmm_(gradient_TV.T, inputs_TH)
        elif of_weight is not None:
            of_weight.add_(torch.mm(gradient_TV.T, inputs_TH))


def _normalised(table_TV: torch.Tensor, targets_T: torch.Tensor, *, keep: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-prob of each target and entropy, from logits, which become probabilities if ``keep``, else are spoiled."""
    rows = len(targets_T)
    step = rows
    if table_TV.device.type == "cpu":
        step = max(1, _CACHE_BYTES // (table_TV.shape[1] * table_TV.element_size()))
    logprobs_T, entropy_T = (table_TV.new_empty(rows) for _ in range(2))
    exponentials = torch.empty_like(table_TV[: min(step, rows)])
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        logprobs_T[part], entropy_T[part] = _softmax(
            table_TV[part], targets_T[part], exponentials[: part.stop - start], keep=keep
        )
    return logprobs_T, entropy_T


def _softmax(
    logits_TV: torch.Tensor, targets_T: torch.Tensor, exponentials_TV: torch.Tensor, *, keep: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    logits_TV.sub_(logits_TV.amax(-1, keepdim=True))
    chosen_T = logits_TV.gather(-1, targets_T.unsqueeze(-1)).squeeze(-1)
    torch.exp(logits_TV, out=exponentials_TV)
    sum_T = exponentials_TV.sum(-1)
    logits_TV.clamp_(min=torch.finfo(logits_TV.dtype).min)  # -inf times probability 0 is no number
    mean_T = torch.linalg.vecdot(exponentials_TV, logits_TV) / sum_T
    if keep:
        torch.div(exponentials_TV, sum_T.unsqueeze(-1), out=logits_TV)
    log_sum_T = sum_T.log()
    return chosen_T - log_sum_T, log_sum_T - mean_T
