"""Beliefs from a model: all cuts and answers of a dialogue in one forward, and the plain path it must equal.

The head runs at the places that predict a gold token only, in float32 or wider, in chunks. ``one_by_one`` feeds each
prefix with each answer on its own: the reference, and the way for models whose layers cannot be branched. Not here:
layouts (``tree``), who sees whom (``attention``), answers (``gold``), files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dialrl.model.belief.attention import AttentionName, BeliefAttention, attention_of
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.belief.tree import BeliefTask, BeliefTree, build_tree, join
from dialrl.model.logprobs import default_chunk_tokens
from dialrl.model.packing import plan_bins

Floats = npt.NDArray[np.float64]
TOKEN_BUDGET = 8192
PROBE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class BeliefRow:
    """Decoder inputs (1, N) and what is read: ``predictors_S`` are places of the row.

    Without ``position_ids`` and ``attention`` it is a plain causal row.
    """

    input_ids: torch.Tensor
    predictors_S: torch.Tensor
    targets_S: torch.Tensor
    position_ids: torch.Tensor | None = None
    attention: BeliefAttention | None = None


def packed_beliefs(
    model: Any,
    tasks: Sequence[BeliefTask],
    *,
    token_budget: int = TOKEN_BUDGET,
    token_floor: float | None = None,
    attention: AttentionName = "split",
) -> list[Floats]:
    """Mean log-prob of each answer at each cut, (cuts, aliases) a task, in one forward a task.

    ``token_budget``: tokens computed together. ``token_floor``: least log-prob of one token. ``attention``: how the row
    is attended to (``dense`` takes one task at a time, since its mask grows with the square of the row).
    """
    trees = [build_tree(task) for task in tasks]
    beliefs: list[Floats] = [np.zeros(0)] * len(tasks)
    for batch in plan_bins([tree.tokens for tree in trees], 1 if attention == "dense" else token_budget):
        logprobs = _row_logprobs(model, [trees[index] for index in batch], attention)
        for index, logprob_S in zip(batch, logprobs, strict=True):
            beliefs[index] = _means(logprob_S, trees[index].entries_S, tasks[index].shape, token_floor)
    return beliefs


def one_by_one(model: Any, tasks: Sequence[BeliefTask], *, token_floor: float | None = None) -> list[Floats]:
    """What ``packed_beliefs`` computes, each prefix with each answer as a sequence of its own."""
    return [_one_by_one(model, task, token_floor) for task in tasks]


def can_branch(model: Any, attention: AttentionName = "split") -> bool:
    """Whether the packed forward gives this model's own log-probs: full attention throughout, and a probe agrees."""
    text = model.config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(text, "sliding_window", None):
        return False
    ids = np.arange(6) % int(text.vocab_size)
    aliases = tuple(GoldAlias("", (1, 2), gold) for gold in ((3, 4), (2, 5, 1)))
    task = BeliefTask(ids, (2, 4, 6), aliases)
    try:
        packed = packed_beliefs(model, [task, task], attention=attention)[1]
    except (TypeError, ValueError, RuntimeError):  # takes no positions, or attends in a way of its own
        return False
    return bool(np.allclose(packed, one_by_one(model, [task])[0], atol=_tolerance(model), rtol=0.0))


def _tolerance(model: Any) -> float:
    return PROBE_TOLERANCE if model.dtype in (torch.float32, torch.float64) else 0.2


def _row_logprobs(model: Any, trees: Sequence[BeliefTree], attention: AttentionName) -> list[Floats]:
    """Log-probs (S,) of each tree's gold tokens; all trees in one row."""
    row = row_of(trees, model.device, model.dtype, attention)
    return _split(gold_logprobs(model, row), [len(tree.targets_S) for tree in trees])


def row_of(trees: Sequence[BeliefTree], device: Any, dtype: torch.dtype, attention: AttentionName) -> BeliefRow:
    """Trees as one row of inputs, without padding."""
    tree = join(trees)
    ids, positions, predictors, targets = (
        torch.from_numpy(column).to(device)
        for column in (tree.ids_N, tree.positions_N, tree.predictors_S, tree.targets_S)
    )
    made = attention_of(attention, tree, device, dtype)
    return BeliefRow(ids[None], predictors, targets, positions[None], made)


def gold_logprobs(model: Any, row: BeliefRow) -> Floats:
    """Log-probs of the row's targets, temperature 1, head and softmax in float32 or wider."""
    with torch.no_grad():
        return _head(model, _hidden(model, row).index_select(0, row.predictors_S), row.targets_S)


def _hidden(model: Any, row: BeliefRow) -> torch.Tensor:
    """(N, H): last hidden states of the row."""
    decoder = model.get_decoder()
    if row.attention is None:
        return decoder(input_ids=row.input_ids, use_cache=False).last_hidden_state[0]
    with row.attention.switched(model):
        output = decoder(
            input_ids=row.input_ids, position_ids=row.position_ids, use_cache=False, **row.attention.arguments()
        )
    return output.last_hidden_state[0]


def _head(model: Any, hidden_TH: torch.Tensor, targets_S: torch.Tensor) -> Floats:
    head = model.get_output_embeddings()
    wide = torch.promote_types(torch.float32, hidden_TH.dtype)
    weight, bias = head.weight.to(wide), None if getattr(head, "bias", None) is None else head.bias.to(wide)
    chunk = default_chunk_tokens(weight.shape[0])
    parts = []
    for hidden, targets in zip(hidden_TH.split(chunk), targets_S.split(chunk), strict=True):
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
            logprob_S = gold_logprobs(model, BeliefRow(ids, places, targets))
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
