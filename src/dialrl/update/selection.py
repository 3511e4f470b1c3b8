"""Which turns are trained, and how many are not and why.

A turn is trained when its row is good, its advantage is known and it has sampled tokens. Options take more out:
replies cut by length (``truncated mask``), zero advantages (``drop_degenerate``), dialogues not chosen (``sft``). With
loss ``outcome`` advantages do not matter: every turn up to a stop, of dialogues whose outcome is known. Everything
taken out is counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dialrl.errors import InputError
from dialrl.trajectory.outcome_labels import is_clipped, outcome_label
from dialrl.update.config import UpdateConfig
from dialrl.update.turns import Turn, check_trained, check_turn


@dataclass(frozen=True)
class SelectedTurns:
    """The turns of one dialogue, and the numbers of those that are trained."""

    turns: Sequence[Turn]
    trained: frozenset[int]

    def contains(self, turn: Turn) -> bool:
        """Whether ``turn`` is trained."""
        return turn.turn in self.trained


class TurnSelection:
    """Decides turn by turn and counts. ``step`` is the policy's step, for ``max_lag``.

    ``labels``: with loss outcome, that of every dialogue seen so far that has one.
    """

    def __init__(self, config: UpdateConfig, step: int, *, has_advantages: bool) -> None:
        self._config = config
        self._step = step
        self._has_advantages = has_advantages
        self._counter: Counter[str] = Counter()
        self.labels: dict[str, float] = {}
        needed = config.is_policy_gradient or (config.loss == "sft" and config.choose != "all")
        if not has_advantages and needed:
            raise InputError("The input has no column 'advantage'. Run first: dialrl advantage FILE -o OUTPUT")

    @property
    def counts(self) -> Mapping[str, int]:
        return {"turns": 0, "turns_zero_advantage": 0, **self._counter}

    def of_dialogue(self, turns: Sequence[Turn]) -> SelectedTurns:
        """The trained turns of one dialogue."""
        self._counter["turns"] += len(turns)
        trained: set[int] = set()
        chosen = self._is_chosen(turns)
        if self._config.loss == "outcome":
            self._label(turns[-1])
        for turn in turns:
            reason = self._untrained_because(turn, chosen)
            if reason is None:
                check_trained(turn)
                trained.add(turn.turn)
                self._counter["turns_zero_advantage"] += turn.advantage == 0
            else:
                self._counter[reason] += 1
        return SelectedTurns(turns, frozenset(trained))

    def _is_chosen(self, turns: Sequence[Turn]) -> bool:
        if self._config.loss != "sft" or self._config.choose == "all":
            return True
        return sum(turn.advantage or 0.0 for turn in turns) > 0

    def _label(self, last: Turn) -> None:
        if last.outcome is None:
            self._counter["dialogues_without_outcome"] += 1
            return
        limits = self._config.outcome_range
        self.labels[last.dialogue] = outcome_label(last.outcome, limits, where=last.where)
        self._counter["outcomes_clipped"] += is_clipped(last.outcome, limits)

    def _untrained_because(self, turn: Turn, chosen: bool) -> str | None:
        if not turn.ok:
            return "turns_failed"
        check_turn(turn, needs_logprobs=self._config.is_policy_gradient)
        if self._config.loss == "outcome":
            return self._not_scored_because(turn)
        if turn.advantage is None and self._has_advantages:
            return "turns_without_advantage"
        self._check_lag(turn)
        if turn.reply_ids is not None and len(turn.reply_ids) == 0:
            return "turns_without_tokens"
        if turn.cut and self._config.truncated == "mask":
            return "turns_cut_masked"
        if turn.advantage == 0 and self._config.drop_degenerate and self._config.loss != "sft":
            return "turns_zero_dropped"
        return None if chosen else "turns_not_chosen"

    def _not_scored_because(self, turn: Turn) -> str | None:
        if turn.dialogue not in self.labels:
            return "turns_without_outcome"
        if turn.stopped:
            return "turns_after_stop"
        return "turns_without_tokens" if turn.reply_ids is not None and len(turn.reply_ids) == 0 else None

    def _check_lag(self, turn: Turn) -> None:
        limit = self._config.max_lag
        if limit is None or turn.policy_step is None or self._step - turn.policy_step <= limit:
            return
        raise InputError(
            f"{turn.where} was sampled at policy step {turn.policy_step}, {self._step - turn.policy_step} steps before"
            f" this policy (step {self._step}); max_lag allows {limit}. Roll out again with a newer policy."
        )
