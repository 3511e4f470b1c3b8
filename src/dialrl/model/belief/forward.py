"""Beliefs from a model: all cuts and answers of a dialogue in one forward, and the plain path it must equal.

The head runs at the places that predict a gold token only, in float32 or wider, in chunks. ``one_by_one`` feeds each
prefix with each answer on its own: the reference, and the way for models whose layers cannot be branched. Back end of
the packed forward: a dense mask. Not here: layouts (``tree``), answers (``gold``), files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, BeliefTree, build_tree
from dialrl.model.logprobs import default_chunk_tokens
from dialrl.model.packing import plan_batches

Floats = npt.NDArray[np.float64]
TOKEN_BUDGET = 8192
PROBE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class BeliefRows:
    """Decoder inputs (B, L) and what is read: ``predictors_S`` index the flattened (B*L) hidden states.

    ``mask`` (B, 1, L, L) is additive; None, as for ``position_ids``: plain causal rows.
    """

    input_ids: torch.Tensor
    predictors_S: torch.Tensor
    targets_S: torch.Tensor
    position_ids: torch.Tensor | None = None
    mask: torch.Tensor | None = None


def packed_beliefs(
    model: Any, tasks: Sequence[BeliefTask], *, token_budget: int = TOKEN_BUDGET, token_floor: float | None = None
) -> list[Floats]:
    """Mean log-prob of each answer at each cut, (cuts, aliases) a task, in one forward a task.

    ``token_budget``: places computed together, padding included. ``token_floor``: least log-prob of one token.
    """
    trees = [build_tree(task) for task in tasks]
    beliefs: list[Floats] = [np.zeros(0)] * len(tasks)
    for batch in plan_batches([tree.tokens for tree in trees], token_budget):
        for index, logprob_S in zip(batch, _rows_logprobs(model, [trees[index] for index in batch]), strict=True):
            beliefs[index] = _means(logprob_S, trees[index].entries_S, tasks[index].shape, token_floor)
    return beliefs


def one_by_one(model: Any, tasks: Sequence[BeliefTask], *, token_floor: float | None = None) -> list[Floats]:
    """What ``packed_beliefs`` computes, each prefix with each answer as a sequence of its own."""
    return [_one_by_one(model, task, token_floor) for task in tasks]


def can_branch(model: Any) -> bool:
    """Whether the packed forward gives this model's own log-probs: full attention throughout, and a probe agrees."""
    text = model.config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(text, "sliding_window", None):
        return False
    ids = np.arange(6) % int(text.vocab_size)
    aliases = tuple(GoldAlias("", (1, 2), gold) for gold in ((3, 4), (2, 5, 1)))
    task = BeliefTask(ids, (2, 4, 6), aliases)
    try:
        packed = packed_beliefs(model, [task])[0]
    except (TypeError, ValueError, RuntimeError):  # takes no positions, or no mask of this shape
        return False
    return bool(np.allclose(packed, one_by_one(model, [task])[0], atol=_tolerance(model), rtol=0.0))


def _tolerance(model: Any) -> float:
    return PROBE_TOLERANCE if model.dtype in (torch.float32, torch.float64) else 0.2


def _rows_logprobs(model: Any, trees: Sequence[BeliefTree]) -> list[Floats]:
    """Log-probs (S,) of each tree's gold tokens; one tree a row, padded on the right."""
    batch = rows_of(trees, model.device, model.dtype)
    return _split(gold_logprobs(model, batch), [len(tree.targets_S) for tree in trees])


def rows_of(trees: Sequence[BeliefTree], device: Any, dtype: torch.dtype) -> BeliefRows:
    """Trees as rows of inputs with positions and a dense additive mask (B, 1, L, L). Padding sees itself alone."""
    width = max(tree.tokens for tree in trees)
    ids_BL = np.zeros((len(trees), width), dtype=np.int64)
    positions_BL = np.zeros_like(ids_BL)
    visible_BLL = np.broadcast_to(np.eye(width, dtype=np.bool_), (len(trees), width, width)).copy()
    for row, tree in enumerate(trees):
        ids_BL[row, : tree.tokens] = tree.ids_N
        positions_BL[row, : tree.tokens] = tree.positions_N
        visible_BLL[row, : tree.tokens, : tree.tokens] = tree.visible()
    predictors = [row * width + tree.predictors_S for row, tree in enumerate(trees)]
    targets = [tree.targets_S for tree in trees]
    return BeliefRows(
        input_ids=torch.from_numpy(ids_BL).to(device),
        position_ids=torch.from_numpy(positions_BL).to(device),
        mask=additive_mask(visible_BLL, device, dtype),
        predictors_S=torch.from_numpy(np.concatenate(predictors)).to(device),
        targets_S=torch.from_numpy(np.concatenate(targets)).to(device),
    )


def additive_mask(visible_BLL: npt.NDArray[np.bool_], device: Any, dtype: torch.dtype) -> torch.Tensor:
    """(B, 1, L, L): 0 where a token may be seen, -inf elsewhere."""
    hidden = torch.from_numpy(~visible_BLL).to(device).unsqueeze(1)
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))


def gold_logprobs(model: Any, batch: BeliefRows) -> Floats:
    """Log-probs of the batch's targets, temperature 1, head and softmax in float32 or wider."""
    with torch.no_grad():
        return _gold_logprobs(model, batch)


def _gold_logprobs(model: Any, batch: BeliefRows) -> Floats:
    output = model.get_decoder()(
        input_ids=batch.input_ids, attention_mask=batch.mask, position_ids=batch.position_ids, use_cache=False
    )
    hidden_TH = output.last_hidden_state.flatten(0, 1).index_select(0, batch.predictors_S)
    head = model.get_output_embeddings()
    wide = torch.promote_types(torch.float32, hidden_TH.dtype)
    weight, bias = head.weight.to(wide), None if getattr(head, "bias", None) is None else head.bias.to(wide)
    chunk = default_chunk_tokens(weight.shape[0])
    parts = []
    for hidden, targets in zip(hidden_TH.split(chunk), batch.targets_S.split(chunk), strict=True):
        logits_TV = torch.nn.functional.linear(hidden.to(wide), weight, bias)
        parts.append(torch.log_softmax(logits_TV, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1))
    return np.asarray(torch.cat(parts).double().cpu().numpy(), dtype=np.float64)


def _one_by_one(model: Any, task: BeliefTask, token_floor: float | None) -> Floats:
    belief = np.empty(task.shape)
    for row, cut in enumerate(task.cuts):
        for column, alias in enumerate(task.aliases):
            prefix = [*map(int, task.trunk_ids[:cut]), *alias.wrapper_ids]
            ids = torch.tensor([[*prefix, *alias.gold_ids[:-1]]], device=model.device)
            places = torch.arange(len(prefix) - 1, ids.shape[1], device=model.device)
            targets = torch.tensor(alias.gold_ids, device=model.device)
            logprob_S = gold_logprobs(model, BeliefRows(ids, places, targets))
            belief[row, column] = _floored(logprob_S, token_floor).mean()
    return belief


def _means(logprob_S: Floats, entries_S: npt.NDArray[np.int64], shape: tuple[int, int], floor: float | None) -> Floats:
    number = shape[0] * shape[1]
    sums = np.bincount(entries_S, weights=_floored(logprob_S, floor), minlength=number)
    return np.asarray(sums / np.bincount(entries_S, minlength=number)).reshape(shape)


def _floored(logprob_S: Floats, floor: float | None) -> Floats:
    return logprob_S if floor is None else np.maximum(logprob_S, floor)


def _split(values: Floats, lengths: Sequence[int]) -> list[Floats]:
    return np.split(values, np.cumsum(lengths)[:-1])
