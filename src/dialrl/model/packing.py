"""From token sequences to model inputs: which sequences go through the model together, and in which layout.

A layout is a ``SequenceBatch``: inputs for the decoder, and the flat places whose hidden state predicts a trained
token. The log-prob code knows nothing else. Lengths decide what is padding and what belongs together, never a token's
value (field case 7). Not here: which tokens are trained (the stage decides), which layout suits a model (``layout``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenSequence:
    """One training sequence: ``ids_T`` (T,) its tokens, ``trained_places`` the ascending places of the trained ones.

    A trained token at place i is predicted by the hidden state at i-1, so no place is 0 (field case 4).
    """

    ids_T: Ints
    trained_places: Ints

    @property
    def input_length(self) -> int:
        """Tokens the model must read: everything before the last trained token."""
        return int(self.trained_places[-1]) if len(self.trained_places) else 0


@dataclass(frozen=True)
class SequenceBatch:
    """Decoder inputs of some sequences, and where their trained tokens are predicted.

    ``input_ids`` (B, L); attention is causal. ``position_ids`` None: positions count from 0. Concatenated sequences: B
    is 1, positions restart with every sequence, ``bounds`` (S+1,) int32 are the places where sequences start, and L,
    ``longest`` their greatest length. ``predicting_places`` (T,) indexes the flattened (B*L) hidden states;
    ``targets_T`` (T,) are the trained ids, in order of the sequences given.
    """

    input_ids: torch.Tensor
    predicting_places: torch.Tensor
    targets_T: torch.Tensor
    position_ids: torch.Tensor | None = None
    bounds: torch.Tensor | None = None
    longest: int = 0

    @property
    def tokens(self) -> int:
        """Places the decoder computes, padding included."""
        return int(self.input_ids.numel())


def pad_sequences(sequences: Sequence[TokenSequence], device: torch.device | str = "cpu") -> SequenceBatch:
    """Sequences as rows, padded on the right.

    No attention mask is needed: padding stands after every real token and a causal model never looks right, so real
    places get the same hidden states as without padding, and only real places are read.

    >>> first = TokenSequence(np.array([4, 5, 9]), np.array([2]))
    >>> second = TokenSequence(np.array([4, 9]), np.array([1]))
    >>> batch = pad_sequences([first, second])
    >>> batch.input_ids.tolist(), batch.predicting_places.tolist(), batch.targets_T.tolist()
    ([[4, 5], [4, 0]], [1, 2], [9, 9])
    """
    width = max(sequence.input_length for sequence in sequences)
    inputs = np.zeros((len(sequences), width), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        inputs[row, : sequence.input_length] = sequence.ids_T[: sequence.input_length]
    predicting = [row * width + sequence.trained_places - 1 for row, sequence in enumerate(sequences)]
    targets = [sequence.ids_T[sequence.trained_places] for sequence in sequences]
    return SequenceBatch(
        input_ids=torch.from_numpy(inputs).to(device),
        predicting_places=torch.from_numpy(np.concatenate(predicting)).to(device),
        targets_T=torch.from_numpy(np.concatenate(targets)).to(device),
    )


def concatenate_sequences(sequences: Sequence[TokenSequence], device: torch.device | str = "cpu") -> SequenceBatch:
    """Sequences one after another in a single row, without padding; attention must stay within ``bounds``.

    >>> first = TokenSequence(np.array([4, 5, 9]), np.array([2]))
    >>> second = TokenSequence(np.array([4, 9]), np.array([1]))
    >>> batch = concatenate_sequences([first, second])
    >>> batch.input_ids.tolist(), batch.position_ids.tolist(), batch.bounds.tolist(), batch.predicting_places.tolist()
    ([[4, 5, 4]], [[0, 1, 0]], [0, 2, 3], [1, 2])
    """
    lengths = [sequence.input_length for sequence in sequences]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    inputs = np.concatenate([sequence.ids_T[: sequence.input_length] for sequence in sequences])
    positions = np.concatenate([np.arange(length) for length in lengths])
    predicting = [start + s.trained_places - 1 for start, s in zip(bounds, sequences, strict=False)]
    targets = [sequence.ids_T[sequence.trained_places] for sequence in sequences]
    return SequenceBatch(
        input_ids=torch.from_numpy(inputs.astype(np.int64)).unsqueeze(0).to(device),
        predicting_places=torch.from_numpy(np.concatenate(predicting)).to(device),
        targets_T=torch.from_numpy(np.concatenate(targets)).to(device),
        position_ids=torch.from_numpy(positions).unsqueeze(0).to(device),
        bounds=torch.from_numpy(bounds.astype(np.int32)).to(device),
        longest=max(lengths),
    )


def plan_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices grouped so that (items x longest) stays within ``token_budget``; similar lengths stand together.

    An item longer than the budget gets a batch of its own. Equal input, equal plan.

    >>> plan_batches([3, 10, 4, 9], token_budget=20)
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    width = 0
    for index in order:
        if not batches or width * (len(batches[-1]) + 1) > token_budget:
            batches.append([])
            width = lengths[index]
        batches[-1].append(index)
    return batches


def plan_bins(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices grouped so that the sum of lengths stays within ``token_budget``; longest first, where there is room.

    An item longer than the budget gets a batch of its own. Equal input, equal plan.

    >>> plan_bins([3, 10, 4, 9], token_budget=13)
    [[1, 0], [3, 2]]
    """
    bins: list[list[int]] = []
    rooms: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        place = next((number for number, room in enumerate(rooms) if room >= lengths[index]), len(bins))
        if place == len(bins):
            bins.append([])
            rooms.append(token_budget)
        bins[place].append(index)
        rooms[place] -= lengths[index]
    return bins
