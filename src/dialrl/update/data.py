"""An advantage file as training data: sequences for the model, and flat arrays over all trained tokens.

Trained tokens are numbered through the whole file, in order of sequences; a turn is a run of them, a sequence a run of
turns. Not here: how dialogues are dealt to optimiser steps and forward passes (``batching``), losses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa

from dialrl.errors import InputError, NumericalError
from dialrl.model.packing import TokenSequence
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.sampling import policy_digests, sampling_temperature
from dialrl.update.config import UpdateConfig
from dialrl.update.held_out import refuse_held_out
from dialrl.update.selection import TurnSelection
from dialrl.update.sequences import DialogueSequence, Limits, build_sequences, flat_logprobs
from dialrl.update.turns import TURN_COLUMNS, Floats, Ints, read_turns

_SQUARABLE = 1e150
POOLS = ("reward", "return", "advantage")


@dataclass(frozen=True)
class TrainingData:
    """S sequences, K trained turns, T trained tokens of D dialogues.

    ``sequence_turns`` (S+1,) and ``turn_tokens`` (K+1,) are offsets; ``turn_dialogue`` and ``sequence_dialogue`` index
    ``dialogues``; ``sampler_logprobs_T`` is None when the file has none (loss sft). ``dialogue_label`` (D,): outcomes
    in [0, 1], for loss outcome only. ``policy_digests``: who sampled the file's parts. ``spreads`` holds standard
    deviation and count of the file's rewards, returns and advantages.
    """

    sequences: tuple[TokenSequence, ...]
    sequence_turns: Ints
    sequence_dialogue: Ints
    turn_tokens: Ints
    turn_dialogue: Ints
    turn_number: Ints
    turn_advantage: Floats
    dialogues: tuple[str, ...]
    sampler_logprobs_T: Floats | None
    temperature: float = 1.0
    policy_digests: tuple[str, ...] = ()
    dialogue_label: Floats | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    spreads: Mapping[str, float | int] = field(default_factory=dict)

    @property
    def trained_tokens(self) -> int:
        return int(self.turn_tokens[-1])

    @cached_property
    def turn_T(self) -> Ints:
        """Index of each trained token's turn."""
        return np.repeat(np.arange(len(self.turn_number)), np.diff(self.turn_tokens))

    @cached_property
    def dialogue_T(self) -> Ints:
        """Index of each trained token's dialogue."""
        return self.turn_dialogue[self.turn_T]

    @cached_property
    def advantage_T(self) -> Floats:
        """Each trained token's advantage: that of its own turn (field case 12)."""
        return self.turn_advantage[self.turn_T]

    @cached_property
    def group_D(self) -> list[str]:
        """The group of each dialogue."""
        return [name.rpartition("/")[0] for name in self.dialogues]

    def tokens_of(self, sequence: int) -> slice:
        """Trained tokens of one sequence."""
        first, last = self.sequence_turns[sequence], self.sequence_turns[sequence + 1]
        return slice(int(self.turn_tokens[first]), int(self.turn_tokens[last]))

    def name_token(self, token: int) -> str:
        """How errors name a trained token: dialogue, turn, and place inside the reply."""
        turn = int(self.turn_T[token])
        dialogue = self.dialogues[int(self.turn_dialogue[turn])]
        return f"dialogue '{dialogue}', turn {self.turn_number[turn]}, token {token - int(self.turn_tokens[turn])}"

    def name_sequence(self, sequence: int) -> str:
        """How errors name a sequence: dialogue, first and last trained turn."""
        turns = self.turn_number[self.sequence_turns[sequence] : self.sequence_turns[sequence + 1]]
        dialogue = self.dialogues[int(self.sequence_dialogue[sequence])]
        return f"dialogue '{dialogue}', turns {turns[0]} to {turns[-1]}"

    def check_vocabulary(self, size: int, *, whose: str = "policy") -> None:
        """Raise InputError when an id is outside the model's vocabulary: the file belongs to another tokenizer."""
        for index, sequence in enumerate(self.sequences):
            low, high = int(sequence.ids_T.min()), int(sequence.ids_T.max())
            if low < 0 or high >= size:
                dialogue = self.dialogues[int(self.sequence_dialogue[index])]
                raise InputError(
                    f"Dialogue '{dialogue}' holds token id {low if low < 0 else high}; the {whose}'s vocabulary has"
                    f" {size} ids. The file was rolled out by a policy with another tokenizer."
                )


def read_training_data(source: TrajectoryFile, config: UpdateConfig, limits: Limits, *, step: int = 0) -> TrainingData:
    """Read ``source`` as training data for ``config``; ``step`` is the policy's own (for ``max_lag``).

    Raises InputError (or NumericalError) for everything in docs/credit.md 3 that cannot be trained, naming dialogue,
    turn and token. A file without anything to train gives data without sequences: that is no error.
    """
    _check_columns(source, config)
    refuse_held_out(source)
    columns = [name for name in TURN_COLUMNS if name in source.names]
    selection = TurnSelection(config, step, has_advantages="advantage" in columns)
    pools = _Pools()
    sequences: list[DialogueSequence] = []
    for table in source.groups(columns):
        pools.add(table)
        for _, turns in groupby(read_turns(table), key=lambda turn: turn.dialogue):
            trained = selection.of_dialogue(list(turns))
            sequences += build_sequences(trained.turns, trained.contains, limits)
    temperature = 1.0
    if config.is_policy_gradient:
        temperature = sampling_temperature(source, given=config.temperature)
    return training_data(
        sequences,
        temperature=temperature,
        policy_digests=policy_digests(source),
        advantages_are_one=not config.is_policy_gradient,
        labels=selection.labels if config.loss == "outcome" else None,
        counts=selection.counts,
        spreads=pools.spreads(),
    )


def training_data(
    sequences: Sequence[DialogueSequence],
    *,
    temperature: float = 1.0,
    policy_digests: tuple[str, ...] = (),
    advantages_are_one: bool = False,
    labels: Mapping[str, float] | None = None,
    counts: Mapping[str, int] | None = None,
    spreads: Mapping[str, float | int] | None = None,
) -> TrainingData:
    """Number the turns and tokens of ``sequences`` through. ``labels``: of every dialogue, for loss outcome."""
    turns = [turn for sequence in sequences for turn in sequence.turns]
    dialogues = list(dict.fromkeys(turn.dialogue for turn in turns))
    index_of = {name: index for index, name in enumerate(dialogues)}
    advantages = [1.0 if advantages_are_one or turn.advantage is None else turn.advantage for turn in turns]
    return TrainingData(
        sequences=tuple(sequence.tokens for sequence in sequences),
        sequence_turns=_offsets(len(sequence.turns) for sequence in sequences),
        sequence_dialogue=np.array([index_of[s.turns[0].dialogue] for s in sequences], dtype=np.int64),
        turn_tokens=_offsets(0 if turn.reply_ids is None else len(turn.reply_ids) for turn in turns),
        turn_dialogue=np.array([index_of[turn.dialogue] for turn in turns], dtype=np.int64),
        turn_number=np.array([turn.turn for turn in turns], dtype=np.int64),
        turn_advantage=np.array(advantages, dtype=np.float64),
        dialogues=tuple(dialogues),
        sampler_logprobs_T=flat_logprobs(sequences) if labels is None else None,
        dialogue_label=None if labels is None else np.array([labels[name] for name in dialogues], dtype=np.float64),
        temperature=temperature,
        policy_digests=policy_digests,
        counts={
            **(counts or {}),
            "dialogues": len(dialogues),
            "sequences": len(sequences),
            "turns_trained": len(turns),
        },
        spreads=spreads or {},
    )


def _offsets(lengths: Iterable[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))]).astype(np.int64)


def _check_columns(source: TrajectoryFile, config: UpdateConfig) -> None:
    if config.loss == "outcome" and "outcome" not in source.names:
        raise InputError(
            f"{source.where} has no column 'outcome', which loss outcome learns from. It comes from the rollout, or"
            " from dialrl judge where the outcome follows from the grades."
        )
    missing = [name for name in ("prompt_ids", "reply_ids") if name not in source.names]
    if missing:
        raise InputError(
            f"{source.where} lacks {' and '.join(missing)}: its replies are text without token ids (imported dialogues,"
            " or an engine that gives text only). Such a file can be evaluated, not trained."
        )


def _spread(values: Floats) -> float:
    """Standard deviation; of huge values too, whose squares would not be finite."""
    size = float(np.abs(values).max())
    return float(values.std()) if size < _SQUARABLE else float((values / size).std()) * size


class _Pools:
    """Collects the file's rewards, returns and advantages to tell their spread."""

    def __init__(self) -> None:
        self._values: dict[str, list[Floats]] = {name: [] for name in POOLS}

    def add(self, table: pa.Table) -> None:
        for name in POOLS:
            if name in table.column_names:
                self._values[name].append(np.asarray(table[name].drop_null().to_numpy(), dtype=np.float64))

    def spreads(self) -> dict[str, float | int]:
        return dict(self._figures())

    def _figures(self) -> Iterator[tuple[str, float | int]]:
        for name, parts in self._values.items():
            values = np.concatenate(parts) if parts else np.zeros(0)
            if not np.isfinite(values).all():
                raise NumericalError(f"Column '{name}' holds a value that is not finite; what is not known is null.")
            if len(values):
                yield f"{name}_std", _spread(values)
                yield f"{name}_count", len(values)
