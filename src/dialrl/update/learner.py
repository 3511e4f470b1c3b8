"""Optimiser steps on training data in memory: gradients, guards, AdamW, and the figures of every step.

Not here: files, policy directories, which steps to make (``plan``).
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from dialrl.errors import InputError, NumericalError
from dialrl.model.checkpointing import checkpoint_layers, free_memory_bytes
from dialrl.model.distributed import Forward, processes, shard_model, whole
from dialrl.model.layout import prepare_layout
from dialrl.model.logprobs import check_head
from dialrl.model.threads import training_threads
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData
from dialrl.update.memory import ModelShape, UnknownShapeError, wants_checkpointing
from dialrl.update.optimizer import build_optimizer, set_learning_rate
from dialrl.update.outcomes import outcome_figures
from dialrl.update.passes import Passes
from dialrl.update.plan import PlannedStep
from dialrl.update.statistics import StepSums

Row = dict[str, Any]


class Learner:
    """A model and its optimiser. ``steps`` counts AdamW's steps over the whole run; ``stop``, once set, ends training.
    ``first_scores``: with loss outcome, each dialogue's score before its first step on the data trained last.

    ``model``: a causal language model in full precision, in evaluation mode (dropout would break the ratio).
    ``device``: where it trains; with several processes it may still be in ordinary memory, and its shards go there.
    """

    def __init__(
        self, model: Any, config: UpdateConfig, reference: Any | None = None, device: torch.device | None = None
    ) -> None:
        self.model, self.config, self.reference = model, config, reference
        device = model.device if device is None else device
        self.layout = prepare_layout(model, config.layout, config.attention, device)
        self.group = processes()
        self.memory_note: str | None = None
        self.checkpointed = self._wants_checkpointing(device)
        if self.checkpointed:
            checkpoint_layers(model)
        check_head(model)
        self.forward = shard_model(model, self.group, device)
        self.reference_forward: Forward | None = None
        if reference is not None:
            prepare_layout(reference, self.layout.name, config.attention, device)
            self.reference_forward = shard_model(reference, self.group, device)
        self.optimizer = build_optimizer(model, config)
        self.steps = 0
        self.first_scores: dict[int, float] = {}
        self.stop = threading.Event()

    def _wants_checkpointing(self, device: torch.device) -> bool:
        """As asked for, or by the estimate; without one activations are kept, and ``memory_note`` says so."""
        try:
            shape = ModelShape.of(self.model.config)
        except UnknownShapeError as error:
            self.memory_note = (
                f"Memory was not estimated ({error}), so activations are kept; where they do not fit, use"
                " --gradient-checkpointing on or fewer micro_batch_tokens."
            )
            return self.config.gradient_checkpointing == "on"
        return wants_checkpointing(self.config, shape, _room(self.model, device), processes=self.group.count)

    def train(self, data: TrainingData, planned: Sequence[PlannedStep], rate: float) -> Iterator[Row]:
        """Make the planned steps at learning rate ``rate``; one mapping of figures each.

        Raises InputError when sampler and trainer disagree beyond ``max_mismatch``, NumericalError when a log-prob at
        a trained place, the loss or the gradient is not finite. Neither changes the weights by the step at fault.
        """
        passes = Passes(
            self.model, data, self.config, self.reference, self.layout, self.forward, self.group, self.stop,
            self.reference_forward,
        )  # fmt: skip
        self.first_scores = {}
        set_learning_rate(self.optimizer, rate)
        with training_threads(self.model):
            self._remember_later(passes, planned)
        for number, step in enumerate(planned):
            started = time.perf_counter()
            with training_threads(self.model):
                sums, norm = self._step(passes, step, first=number == 0)
            seconds = time.perf_counter() - started
            yield {
                "optimizer_step": self.steps,
                "epoch": step.epoch,
                "dialogues": len(step.dialogues),
                **self._figures(passes, data, step, sums),
                "gradient_norm": norm,
                "learning_rate": rate,
                **data.spreads,
                "seconds": seconds,
                "tokens_per_second": sums.tokens / max(seconds, 1e-9),
            }

    def _step(self, passes: Passes, step: PlannedStep, *, first: bool) -> tuple[StepSums, float]:
        """One step of the optimiser: what its passes summed up, and the norm of the gradient before clipping."""
        self.optimizer.zero_grad(set_to_none=True)
        sums = passes.accumulate(step.dialogues, step.weights_T, first=first)
        self._check_mismatch(sums)
        culprit = partial(passes.name_culprit, step.dialogues, step.weights_T)
        return sums, self._optimizer_step(sums.loss, culprit)

    def _figures(self, passes: Passes, data: TrainingData, step: PlannedStep, sums: StepSums) -> Row:
        figures = sums.figures()
        if data.dialogue_label is None:
            return {**figures, **advantage_figures(data, step)}
        kept = {name: figures[name] for name in ("loss", "entropy", "trained_tokens", "read_tokens")}
        groups = [data.group_D[dialogue] for dialogue in step.dialogues]
        labels, scores = data.dialogue_label[step.dialogues], passes.scores_of(step.dialogues)
        for dialogue, score in zip(step.dialogues, scores.tolist(), strict=True):
            self.first_scores.setdefault(dialogue, score)
        return {**kept, **outcome_figures(scores, labels, groups)}

    def _remember_later(self, passes: Passes, planned: Sequence[PlannedStep]) -> None:
        """pi_old of dialogues that later steps train; the first step's comes from its own forward pass."""
        if not self.config.is_policy_gradient or self.config.old_logprobs == "sampler" or len(planned) < 2:
            return
        later = {dialogue for step in planned[1:] for dialogue in step.dialogues}
        passes.remember(sorted(later - set(planned[0].dialogues)))

    def _check_mismatch(self, sums: StepSums) -> None:
        mean = sums.mismatch_mean
        if not self.config.is_policy_gradient or mean is None or mean <= self.config.max_mismatch:
            return
        raise InputError(
            f"Log-probs of sampler and trainer differ by {mean:.3g} in the mean over {sums.mismatch_tokens} tokens;"
            f" max_mismatch allows {self.config.max_mismatch}. The file was sampled by another policy, template or"
            " temperature than this one. Train the policy that sampled it, or raise max_mismatch."
        )

    def _optimizer_step(self, loss: float, name_culprit: Callable[[], str] = str) -> float:
        norm = float(whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_gradient_norm)))
        if not np.isfinite([loss, norm]).all():  # both: a clip can turn a loss that is not a number into no gradient
            raise NumericalError(
                f"Loss {loss} and gradient norm {norm} at optimiser step {self.steps + 1}; expected finite numbers."
                f"{name_culprit()} The step was not made and nothing was saved. Lower the learning rate, or look at the"
                " input's advantages."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return norm


def _room(model: Any, device: torch.device) -> int | None:
    """Memory for the whole update on ``device``: what is free, and what the weights take if they are there already."""
    free = free_memory_bytes(device)
    there = sum(parameter.nbytes for parameter in model.parameters()) if model.device == device else 0
    return None if free is None else free + there


def advantage_figures(data: TrainingData, step: PlannedStep) -> Row:
    """What the loss cannot show: a centred on-policy loss is about 0 by construction (field case 21)."""
    advantages = data.advantage_T[step.tokens]
    return {
        "mean_abs_advantage": float(np.abs(advantages).mean()),
        "zero_advantage_tokens": int((advantages == 0).sum()),
    }
