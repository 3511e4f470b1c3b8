"""The fast tier's dialogues in text, through files: spoken, graded on the text, and given credit by the stages.

The slow and complete way: every iteration leaves a judged, a returns and an advantage file that any other command
reads. The same run in memory (``fast_world``, ``fast_credit``) takes the same steps.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dialrl.advantage.stage import compute_advantages
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.replies import speak
from dialrl.environment.demo.rules import Levels, State, initial_deficit
from dialrl.environment.demo.world import DemoUser
from dialrl.judge.demo import DemoJudge
from dialrl.lab.config import FastConfig
from dialrl.lab.fast_credit import advantage_config, judge_seed, returns_config
from dialrl.lab.fast_policy import CHOICES, Visible, encode, probabilities
from dialrl.lab.fast_world import Seat
from dialrl.ragged import Floats
from dialrl.returns.stage import compute_returns
from dialrl.trajectory.layout import floats
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter


@dataclass(frozen=True)
class SpokenDialogue:
    """One dialogue in text: its user (with the transcript), and what the policy saw and chose at each turn."""

    seat: Seat
    user: DemoUser
    features_KF: list[Floats]
    choice_K: list[int]


def talk(weights_FA: Floats, seat: Seat, turn_limit: int, extra_trust: int = 0) -> SpokenDialogue:
    """One dialogue, spoken by sampling the policy's choices."""
    draws = random.Random(seat.policy_seed)
    user = DemoUser(seat.scenario, seat.user_seed, turn_limit, extra_trust)
    dialogue = SpokenDialogue(seat, user, [], [])
    symbol = Symbol.OPENING
    while user.end_reason is None:
        features_F = encode(Visible(user.state, symbol, user.turn))
        cumulated_A = np.cumsum(probabilities(weights_FA, features_F))
        choice = min(int(np.searchsorted(cumulated_A, draws.random())), len(CHOICES) - 1)
        dialogue.features_KF.append(features_F)
        dialogue.choice_K.append(choice)
        symbol = user.respond(speak(CHOICES[choice], user.transcript, draws.random())).symbol
    return dialogue


def credit_by_files(folder: Path, dialogues: Sequence[SpokenDialogue], config: FastConfig, iteration: int) -> Floats:
    """(K,) advantages, by way of judge.parquet, returns.parquet and advantage.parquet in ``folder``."""
    write_judged(folder / "judge.parquet", dialogues, config, iteration)
    compute_returns(folder / "judge.parquet", folder / "returns.parquet", returns_config(config))
    compute_advantages(folder / "returns.parquet", folder / "advantage.parquet", advantage_config(config))
    return floats(TrajectoryFile.open(folder / "advantage.parquet").read(["advantage"])["advantage"])


def write_judged(path: Path, dialogues: Sequence[SpokenDialogue], config: FastConfig, iteration: int) -> None:
    """The dialogues as a judged trajectory file."""
    judge = DemoJudge(config.judge_noise, config.judge_missing, config.extra_trust)
    seeds = [judge_seed(config.seed, iteration, each.seat.scenario.scenario_id, each.seat.sample) for each in dialogues]
    rows = [row for each, seed in zip(dialogues, seeds, strict=True) for row in _rows(each, judge, seed)]
    table = rows_to_table(rows)
    record = StageRecord("judge", config.semantic_values(), seed=config.seed, counts={"dialogues": len(dialogues)})
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage().after(record))


def _rows(dialogue: SpokenDialogue, judge: DemoJudge, seed: int) -> list[dict[str, Any]]:
    """One row a turn: what was said, the grades, and the state that follows from them."""
    user, transcript, scenario = dialogue.user, dialogue.user.transcript, dialogue.seat.scenario
    position = deficit = initial_deficit(scenario.need)
    rows: list[dict[str, Any]] = []
    for turn, verdict in enumerate(judge.grade_dialogue(scenario, transcript, seed)):
        known = verdict.status == "ok"
        increment = Levels(*(grade.level for grade in verdict.grades)).increment
        position = (position[0] + increment[0], position[1] + increment[1], position[2] + increment[2])
        rows.append(
            {
                "group_id": scenario.scenario_id,
                "sample": dialogue.seat.sample,
                "turn": turn,
                "dialogue_id": f"{scenario.scenario_id}/{dialogue.seat.sample}",
                "scenario_id": scenario.scenario_id,
                "environment": "demo",
                "messages": [transcript[2 * turn].to_row()],
                "reply": transcript[2 * turn + 1].content,
                "status": "ok",
                "deficit": [float(value) for value in deficit],
                "increment": [float(value) for value in increment] if known else None,
                "position": [float(value) for value in position],
                "position_estimated": not known,
                "grades": [vars(grade) for grade in verdict.grades],
                "judge_status": verdict.status,
                "judge_error": verdict.error,
            }
        )
    rows[-1] |= {
        "end_reason": user.end_reason,
        "terminated": user.end_reason == "success",
        "truncated": user.end_reason == "turn_limit",
        "outcome": State(scenario.need).distance - user.state.distance,
        "final_messages": [transcript[-1].to_row()],
    }
    return rows
