"""The fast tier of the laboratory: the demo world, its judge, the files and the credit stages, in seconds.

Each iteration speaks dialogues in text, writes them as a judged trajectory file, lets the stages ``returns`` and
``advantage`` compute credit on that file, and takes one policy-gradient step on a softmax policy. What it finds about a
credit rule is about the rule: nothing but the policy differs from a run of ``dialrl train``.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.stage import compute_advantages
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.planner import DemoReference, solve
from dialrl.environment.demo.replies import speak
from dialrl.environment.demo.rules import Levels, State, initial_deficit
from dialrl.environment.demo.scenario import DemoScenario, scenarios
from dialrl.environment.demo.world import DemoUser
from dialrl.judge.demo import DemoJudge
from dialrl.lab.config import FastConfig
from dialrl.lab.fast_policy import (
    CHOICES,
    Floats,
    Visible,
    encode,
    policy_gradient,
    probabilities,
    weak_start,
)
from dialrl.progress import SILENT, Progress
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.seeds import seed_for
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter


@dataclass(frozen=True)
class FastPoint:
    """Held-out figures after ``iteration`` steps: J, its share of optimum, dialogues in which the detail was told."""

    iteration: int
    value: float
    share: float
    revealed: float


@dataclass(frozen=True)
class FastRun:
    """The learning curve, the final weights (F, A) and the reference values of the held-out scenarios."""

    curve: tuple[FastPoint, ...]
    weights_FA: Floats
    reference: DemoReference


@dataclass(frozen=True)
class _Dialogue:
    user: DemoUser
    group_id: str
    sample: int
    features_KF: list[Floats]
    chosen_K: list[int]


def run_fast(folder: Path, config: FastConfig | None = None, *, progress: Progress = SILENT) -> FastRun:
    """Learns in ``folder`` (one sub-folder an iteration: judge, returns and advantage files) and evaluates.

    Raises OutputExistsError when ``folder`` already holds an iteration of a run.
    """
    config = config or FastConfig()
    weights_FA, reference = weak_start(), solve(scenarios("test"))
    curve: list[FastPoint] = []
    progress.start("fast tier", config.iterations, "iterations")
    for iteration in range(config.iterations + 1):
        if iteration % config.evaluate_every == 0 or iteration == config.iterations:
            curve.append(_evaluate(weights_FA, config, iteration, reference))
        if iteration < config.iterations:
            weights_FA = weights_FA + config.learning_rate * _step(folder / f"{iteration:04d}", weights_FA, config)
            progress.advance(share=curve[-1].share)
    return FastRun(tuple(curve), weights_FA, reference)


def _step(folder: Path, weights_FA: Floats, config: FastConfig) -> Floats:
    """One iteration's files and the gradient made of them."""
    iteration = int(folder.name)
    chosen = _scenarios_of(iteration, config)
    dialogues = [
        _talk(weights_FA, scenario, config.seed, iteration, sample)
        for scenario in sorted(chosen, key=lambda each: each.scenario_id)
        for sample in range(config.samples)
    ]
    judged = folder / "judge.parquet"
    _write(judged, dialogues, DemoJudge(config.judge_noise, config.judge_missing), config)
    compute_returns(judged, folder / "returns.parquet", ReturnsConfig(reward=config.reward, gamma=config.gamma))
    credit = AdvantageConfig(preset=config.preset, gamma=config.gamma, min_std=config.min_std)
    compute_advantages(folder / "returns.parquet", folder / "advantage.parquet", credit)
    advantage = TrajectoryFile.open(folder / "advantage.parquet").read(["advantage"])["advantage"]
    return policy_gradient(
        weights_FA,
        np.stack([features for dialogue in dialogues for features in dialogue.features_KF]),
        np.array([choice for dialogue in dialogues for choice in dialogue.chosen_K]),
        _with_nan(advantage),
    )


def _scenarios_of(iteration: int, config: FastConfig) -> list[DemoScenario]:
    """The iteration's training scenarios: every epoch is a fresh order of all of them."""
    known = scenarios("train")
    per_epoch = max(1, len(known) // config.groups)
    order = random.Random(seed_for(config.seed, iteration // per_epoch, "epoch", 0, 0, "order")).sample(
        range(len(known)), len(known)
    )
    first = iteration % per_epoch * config.groups
    return [known[place] for place in order[first : first + config.groups]]


def _talk(weights_FA: Floats, scenario: DemoScenario, seed: int, iteration: int, sample: int) -> _Dialogue:
    """One dialogue, spoken by sampling the policy's choices."""
    draws = random.Random(seed_for(seed, iteration, scenario.scenario_id, sample, 0, "policy"))
    user = DemoUser(scenario, seed_for(seed, iteration, scenario.scenario_id, sample, 0, "user"))
    dialogue = _Dialogue(user, scenario.scenario_id, sample, [], [])
    symbol = Symbol.OPENING
    while user.end_reason is None:
        features_F = encode(Visible(user.state, symbol, user.turn))
        cumulated_A = np.cumsum(probabilities(weights_FA, features_F))
        choice = min(int(np.searchsorted(cumulated_A, draws.random())), len(CHOICES) - 1)
        dialogue.features_KF.append(features_F)
        dialogue.chosen_K.append(choice)
        symbol = user.respond(speak(CHOICES[choice], user.transcript, draws.random())).symbol
    return dialogue


def _evaluate(weights_FA: Floats, config: FastConfig, iteration: int, reference: DemoReference) -> FastPoint:
    users = [
        _talk(weights_FA, scenario, config.seed, -1, sample).user
        for scenario in scenarios("test")
        for sample in range(config.evaluate_repeats)
    ]
    gains = [State(user.scenario.need).distance - user.state.distance for user in users]
    value = sum(gains) / len(gains)
    revealed = sum(user.state.revealed for user in users) / len(users)
    return FastPoint(iteration, value, reference.share(value), revealed)


def _write(path: Path, dialogues: Sequence[_Dialogue], judge: DemoJudge, config: FastConfig) -> None:
    """The dialogues as a judged trajectory file."""
    table = rows_to_table([row for dialogue in dialogues for row in _rows(dialogue, judge, config.seed)])
    record = StageRecord("judge", config.semantic_values(), seed=config.seed, counts={"dialogues": len(dialogues)})
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage().after(record))


def _rows(dialogue: _Dialogue, judge: DemoJudge, seed: int) -> list[dict[str, Any]]:
    """One row a turn: what was said, the grades, and the state that follows from them."""
    user, transcript = dialogue.user, dialogue.user.transcript
    position = deficit = initial_deficit(user.scenario.need)
    rows: list[dict[str, Any]] = []
    for turn, verdict in enumerate(judge.grade_dialogue(user.scenario, transcript, seed + dialogue.sample)):
        known = verdict.status == "ok"
        increment = Levels(*(grade.level for grade in verdict.grades)).increment
        position = (position[0] + increment[0], position[1] + increment[1], position[2] + increment[2])
        rows.append(
            {
                "group_id": dialogue.group_id,
                "sample": dialogue.sample,
                "turn": turn,
                "dialogue_id": f"{dialogue.group_id}/{dialogue.sample}",
                "scenario_id": user.scenario.scenario_id,
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
        "outcome": State(user.scenario.need).distance - user.state.distance,
        "final_messages": [transcript[-1].to_row()],
    }
    return rows


def _with_nan(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.to_numpy().astype(np.float64)
    return values
