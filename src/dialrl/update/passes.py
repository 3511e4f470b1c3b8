"""Forward and backward passes over training data: log-probs before the step, and gradients of the step.

Gradients of all forward passes of an optimiser step add up in ``.grad``; the sum does not depend on how the step is
cut. Not here: which dialogues make a step (``plan``), the optimiser (``learner``).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from dialrl.errors import HaltError, NumericalError
from dialrl.model.distributed import Forward, Processes, largest, own_rows, share_known
from dialrl.model.layout import Layout, prepare_layout
from dialrl.model.logprobs import HeadSettings, TokenLogprobs, token_logprobs
from dialrl.update.batching import deal, micro_batches
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData
from dialrl.update.losses import PolicyTokens
from dialrl.update.losses.corrections import divergence_k3
from dialrl.update.objective import ObjectiveTokens, objective
from dialrl.update.statistics import StepSums
from dialrl.update.turns import Floats


class Passes:
    """Passes of one policy over one file's training data.

    Log-probs of the policy *before* the first optimiser step are kept as they become known: those of the first step
    from its own forward pass (where the ratio is 1 by construction), all others from ``remember``, if asked for.
    """

    def __init__(
        self,
        model: Any,
        data: TrainingData,
        config: UpdateConfig,
        reference: Any | None = None,
        layout: Layout | None = None,
        forward: Forward | None = None,
        group: Processes | None = None,
        stop: threading.Event | None = None,
        reference_forward: Forward | None = None,
    ) -> None:
        self.model, self.data, self.config, self.reference = model, data, config, reference
        self._forward, self._reference_forward = forward, reference_forward
        self._group, self._stop = group or Processes(), stop
        self.layout = layout or prepare_layout(model, config.layout, config.attention)
        self.device = next(model.parameters()).device
        self._initial_T = self._tensor(np.full(data.trained_tokens, np.nan))
        self._advantage_T = self._tensor(data.advantage_T)
        sampler = data.sampler_logprobs_T
        self._sampler_T = None if sampler is None else self._tensor(sampler)
        label = data.dialogue_label
        self._label_T = None if label is None else self._tensor(label[data.dialogue_T])
        self._score_D = self._tensor(np.full(len(data.dialogues), np.nan))
        by_turn = config.gspo_level == "turn" and label is None
        unit = data.turn_T if by_turn else data.dialogue_T
        self._unit_T = torch.from_numpy(unit).to(self.device)

    def remember(self, dialogues: Sequence[int]) -> None:
        """Store the log-probs of ``dialogues`` under the policy as it is now: pi_old of later optimiser steps."""
        for sequences, real in self._micro_batches(dialogues):
            with torch.no_grad():
                result, _ = self._logprobs(self.model, sequences)
            if real:
                self._initial_T[self._places(sequences)] = result.logprobs_T.double()
        share_known(self._initial_T, self._group)

    def accumulate(self, dialogues: Sequence[int], weights_T: Floats, *, first: bool) -> StepSums:
        """Add the gradients of one optimiser step over ``dialogues``; ``weights_T`` over all tokens of the file.

        ``first``: no optimiser step was made since the data was opened.
        """
        sums = StepSums(divergence_reference=0.0 if self.config.kl_coefficient > 0 else None)
        weights = self._tensor(weights_T)
        self._score_D.fill_(torch.nan)
        for sequences, real in self._micro_batches(dialogues):
            if real:
                self._accumulate(sequences, weights, sums, first=first)
            else:
                result, _ = self._logprobs(self.model, sequences)  # in the order of a pass that counts: all gather
                self._reference_logprobs(sequences)
                (result.logprobs_T * 0.0).sum().backward()
        if first:
            share_known(self._initial_T, self._group)
        share_known(self._score_D, self._group)
        return sums.over(self._group)

    def scores_of(self, dialogues: Sequence[int]) -> Floats:
        """With loss outcome: the scores that ``dialogues`` had in the last ``accumulate``."""
        scores: Floats = self._score_D[torch.tensor(list(dialogues), device=self.device)].cpu().numpy()
        return scores

    def _accumulate(self, sequences: list[int], weights: torch.Tensor, sums: StepSums, *, first: bool) -> None:
        places = self._places(sequences)
        result, read = self._logprobs(self.model, sequences)
        logprobs = result.logprobs_T.double()
        if first:
            self._initial_T[places] = logprobs.detach()
        old = self._old(places) if self.config.is_policy_gradient else logprobs.detach()
        policy = PolicyTokens(logprobs, old, self._advantage_T[places], self._unit_T[places])
        tokens = ObjectiveTokens(
            policy,
            weights[places],
            result.entropy_T.double(),
            None if self._sampler_T is None else self._sampler_T[places],
            self._reference_logprobs(sequences),
            None if self._label_T is None else self._label_T[places],
        )
        outcome = objective(tokens, self.config)
        outcome.loss.backward()
        if outcome.score_T is not None:
            self._score_D[policy.unit_T] = outcome.score_T
        sums.tokens += len(places)
        sums.read_tokens += read
        sums.loss += outcome.loss.item()
        sums.ratio += outcome.ratio_T.sum().item()
        sums.ratio_max = max(sums.ratio_max, outcome.ratio_T.max().item())
        sums.clipped += int(outcome.clipped_T.sum().item())
        sums.entropy += result.entropy_T.detach().double().sum().item()
        sums.divergence_old_new += divergence_k3(policy.old_logprobs_T, logprobs.detach()).sum().item()
        if outcome.reference_divergence is not None:
            sums.divergence_reference = (sums.divergence_reference or 0.0) + outcome.reference_divergence.item()
        self._add_mismatch(places, sums)

    def name_culprit(self, dialogues: Sequence[int], weights_T: Floats) -> str:
        """A sentence naming the first token whose own loss or gradient is not finite, or the sequence where no single
        token has that; empty where nothing is found.

        Goes through the sequences one by one (all processes together), so it is for a step that has already failed.
        Leaves no gradients.
        """
        weights, wanted = self._tensor(weights_T), set(dialogues)
        for index in range(len(self.data.sequences)):
            if int(self.data.sequence_dialogue[index]) in wanted and self._is_broken(index, weights):
                return f" First of {self._name_token(index, weights)}."
        return ""

    def _name_token(self, index: int, weights: torch.Tensor) -> str:
        """The first token of a broken sequence that is broken by itself, found by halving."""
        places = self.data.tokens_of(index)
        first, last = places.start, places.stop
        if self._is_broken(index, torch.zeros_like(weights)):  # whatever the weights: no token can be told apart
            return self.data.name_sequence(index)
        while last - first > 1:
            middle = (first + last) // 2
            if self._is_broken(index, _only(weights, first, middle)):
                last = middle
            elif self._is_broken(index, _only(weights, middle, last)):
                first = middle
            else:
                return self.data.name_sequence(index)
        return f"{self.data.name_token(first)} (advantage {self.data.advantage_T[first]:g})"

    def _is_broken(self, index: int, weights: torch.Tensor) -> bool:
        """Whether loss or gradient of one sequence is not finite, in any process. Leaves no gradients."""
        self.model.zero_grad(set_to_none=True)
        sums = StepSums()
        self._accumulate([index], weights, sums, first=False)
        gradients = [own_rows(one.grad)[0] for one in self.model.parameters() if one.grad is not None]
        broken = not np.isfinite(sums.loss) or not all(bool(torch.isfinite(one).all()) for one in gradients)
        self.model.zero_grad(set_to_none=True)
        return bool(max(largest([float(broken)], self._group)))

    def _micro_batches(self, dialogues: Sequence[int]) -> Iterator[tuple[list[int], bool]]:
        """Sequences of each forward pass of this process, and whether they count.

        Where others have one pass more, a shortest sequence goes along that counts for nothing.
        """
        batches = micro_batches(self.data, dialogues, self.config, packed=self.layout.name == "packed")
        lengths = [sequence.input_length for sequence in self.data.sequences]
        costs = [sum(lengths[index] for index in batch) for batch in batches]
        for number in (
            deal(costs, self._group.count)[self._group.rank] if self._group.count > 1 else range(len(batches))
        ):
            if self._stop is not None and self._stop.is_set():
                raise HaltError("The update was stopped before its step was made; --resume makes it again.")
            yield ([int(np.argmin(lengths))], False) if number is None else (batches[number], True)

    def _old(self, places: torch.Tensor) -> torch.Tensor:
        """log pi_old: the sampler's own, or the trainer's before the first step."""
        if self.config.old_logprobs == "sampler" and self._sampler_T is not None:
            return self._sampler_T[places]
        return self._initial_T[places]

    def _add_mismatch(self, places: torch.Tensor, sums: StepSums) -> None:
        if self._sampler_T is None:
            return
        initial = self._initial_T[places]
        known = ~initial.isnan()
        sums.add_mismatch(initial[known], self._sampler_T[places][known])

    def _reference_logprobs(self, sequences: list[int]) -> torch.Tensor | None:
        if self.reference is None:
            return None
        with torch.no_grad():
            result, _ = self._logprobs(self.reference, sequences)
        return result.logprobs_T.double()

    def _logprobs(self, model: Any, sequences: list[int]) -> tuple[TokenLogprobs, int]:
        """Log-probs of the trained tokens of ``sequences`` in order, checked, and the places the model read."""
        batch = self.layout.batch([self.data.sequences[index] for index in sequences], self.device)
        settings = HeadSettings(
            self.data.temperature, self.config.head_chunk_tokens, self.config.entropy_bonus > 0 and model is self.model
        )
        with self._autocast():
            forward = self._forward if model is self.model else self._reference_forward
            result = token_logprobs(model, batch, settings) if forward is None else forward(batch, settings)
        self._check_finite(result.logprobs_T, sequences)
        return result, batch.tokens

    def _autocast(self) -> Any:
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _check_finite(self, logprobs_T: torch.Tensor, sequences: list[int]) -> None:
        finite = torch.isfinite(logprobs_T)
        if bool(finite.all()):
            return
        first = int((~finite).nonzero()[0])
        place = int(self._places(sequences)[first])
        raise NumericalError(
            f"The model gives log-prob {logprobs_T[first].item()} at a trained place: {self.data.name_token(place)}."
            " Nothing was saved; the input policy is the last good one. Lower the learning rate, or look at that turn."
        )

    def _places(self, sequences: Sequence[int]) -> torch.Tensor:
        slices = [self.data.tokens_of(index) for index in sequences]
        return torch.from_numpy(np.concatenate([np.arange(s.start, s.stop) for s in slices])).to(self.device)

    def _tensor(self, values_T: Floats) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values_T, dtype=np.float64)).to(self.device)


def _only(weights: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """``weights`` of the tokens from ``first`` to before ``last``, 0 elsewhere."""
    kept = torch.zeros_like(weights)
    kept[first:last] = weights[first:last]
    return kept
