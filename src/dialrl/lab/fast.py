"""The fast tier of the laboratory: the demo world, its judge and the credit stages with a softmax policy, in seconds.

Each iteration plays dialogues, lets judge, ``returns`` and ``advantage`` make credit of them, and takes one
policy-gradient step. In memory (``play_fast``) that is about a second a run; through text and files (``run_fast``)
it is the same run, bit for bit, with every file to look at. What it finds about a credit rule is about the rule:
nothing but the policy differs from a run of ``dialrl train``.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from dialrl.environment.demo.planner import DemoReference, solve
from dialrl.environment.demo.scenario import DemoScenario, scenarios
from dialrl.judge.demo import DemoJudge
from dialrl.lab.config import FastConfig
from dialrl.lab.fast_credit import Credit
from dialrl.lab.fast_policy import policy_gradient, weak_start
from dialrl.lab.fast_world import Episodes, FastWorld, Seat
from dialrl.lab.spoken import credit_by_files, talk
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Floats, Ints
from dialrl.seeds import seed_for

Batch = tuple[Floats, Ints, Floats]  # features (K, F), choices (K,), advantages (K,)


@dataclass(frozen=True)
class FastPoint:
    """Held-out figures after ``iteration`` steps, and what training was like since the point before.

    ``value`` is J, ``share`` its share of the optimum; ``revealed`` and ``succeeded`` are shares of dialogues,
    ``turns`` their mean length, ``entropy`` that of the policy's choices in nats. ``gradient_norm``: mean of the
    steps since the last point (None at the start); ``trained_dialogues``, ``trained_turns``: rollouts so far. A run
    of a language model (``confirm``) does not measure all of it.
    """

    iteration: int
    value: float
    share: float
    revealed: float | None
    succeeded: float | None
    turns: float | None
    entropy: float | None
    gradient_norm: float | None
    trained_dialogues: int
    trained_turns: int


@dataclass(frozen=True)
class FastRun:
    """The learning curve, the final weights (F, A) and the reference values of the held-out scenarios."""

    curve: tuple[FastPoint, ...]
    weights_FA: Floats
    reference: DemoReference


@cache
def reference_of(turn_limit: int, extra_trust: int) -> DemoReference:
    """Exact values of the held-out scenarios in the world of these settings (seconds; once a process)."""
    return solve(scenarios("test"), turn_limit, extra_trust)


def run_fast(folder: Path, config: FastConfig | None = None, *, progress: Progress = SILENT) -> FastRun:
    """Learns in ``folder`` (one sub-folder an iteration: judge, returns and advantage files) and evaluates.

    With ``config.files`` off nothing is written. Raises OutputExistsError when ``folder`` holds an iteration of a run.
    """
    config = config or FastConfig()
    if not config.files:
        return play_fast(config, progress=progress)

    def batch(weights_FA: Floats, iteration: int) -> Batch:
        seats = training_seats(iteration, config)
        dialogues = [talk(weights_FA, seat, config.turn_limit, config.extra_trust) for seat in seats]
        advantage_K = credit_by_files(folder / f"{iteration:04d}", dialogues, config, iteration)
        features_KF = np.stack([features for each in dialogues for features in each.features_KF])
        return features_KF, np.array([choice for each in dialogues for choice in each.choice_K]), advantage_K

    return _learn(config, batch, reference_of(config.turn_limit, config.extra_trust), progress)


def play_fast(
    config: FastConfig,
    reference: DemoReference | None = None,
    *,
    judge: DemoJudge | None = None,
    progress: Progress = SILENT,
) -> FastRun:
    """The same run in memory. ``reference`` saves computing it (``reference_of``); ``judge``: another than config's."""
    world, credit = world_of(config.turn_limit, config.extra_trust), Credit(config, judge)

    def batch(weights_FA: Floats, iteration: int) -> Batch:
        episodes = world.play(weights_FA, training_seats(iteration, config))
        return episodes.features_KF, episodes.choice_K, credit.advantages(episodes, iteration)

    return _learn(config, batch, reference or reference_of(config.turn_limit, config.extra_trust), progress)


@cache
def world_of(turn_limit: int, extra_trust: int) -> FastWorld:
    """The world of these settings: what one run has found out about its rules serves the next in the same process."""
    return FastWorld(turn_limit, extra_trust)


def training_seats(iteration: int, config: FastConfig) -> list[Seat]:
    """The iteration's dialogues to be, in file order: every epoch is a fresh order of all training scenarios."""
    known = scenarios("train")
    per_epoch = max(1, len(known) // config.groups)
    order = random.Random(seed_for(config.seed, iteration // per_epoch, "epoch", 0, 0, "order")).sample(
        range(len(known)), len(known)
    )
    first = iteration % per_epoch * config.groups
    chosen = sorted((known[place] for place in order[first : first + config.groups]), key=lambda each: each.scenario_id)
    return _seats(chosen, config.samples, config.seed, iteration)


def _seats(given: Sequence[DemoScenario], samples: int, seed: int, iteration: int) -> list[Seat]:
    return [
        Seat(
            scenario,
            sample,
            user_seed=seed_for(seed, iteration, scenario.scenario_id, sample, 0, "user"),
            policy_seed=seed_for(seed, iteration, scenario.scenario_id, sample, 0, "policy"),
        )
        for scenario in given
        for sample in range(samples)
    ]


@dataclass
class _Tally:
    """What training was like so far."""

    dialogues: int = 0
    turns: int = 0
    norms: tuple[float, ...] = ()


def _learn(
    config: FastConfig,
    batch: Callable[[Floats, int], Batch],
    reference: DemoReference,
    progress: Progress,
) -> FastRun:
    weights_FA, tally = weak_start(), _Tally()
    held_out = _seats(scenarios("test"), config.evaluate_repeats, config.seed, -1)
    curve: list[FastPoint] = []
    progress.start("fast tier", config.iterations, "iterations")
    for iteration in range(config.iterations + 1):
        if iteration % config.evaluate_every == 0 or iteration == config.iterations:
            curve.append(_evaluate(weights_FA, config, held_out, iteration, reference, tally))
            tally.norms = ()
        if iteration < config.iterations:
            features_KF, choice_K, advantage_K = batch(weights_FA, iteration)
            gradient_FA = policy_gradient(weights_FA, features_KF, choice_K, advantage_K)
            weights_FA = weights_FA + config.learning_rate * gradient_FA
            tally.dialogues += config.groups * config.samples
            tally.turns += len(choice_K)
            tally.norms += (float(np.linalg.norm(gradient_FA)),)
            progress.advance(share=curve[-1].share)
    return FastRun(tuple(curve), weights_FA, reference)


def _evaluate(
    weights_FA: Floats,
    config: FastConfig,
    seats: Sequence[Seat],
    iteration: int,
    reference: DemoReference,
    tally: _Tally,
) -> FastPoint:
    episodes: Episodes = world_of(config.turn_limit, config.extra_trust).play(weights_FA, seats)
    value = float(episodes.gain_D.mean())
    return FastPoint(
        iteration,
        value,
        reference.share(value),
        revealed=sum(state.revealed for state in episodes.final_D) / len(seats),
        succeeded=float(episodes.succeeded_D.mean()),
        turns=len(episodes.turn_K) / len(seats),
        entropy=float(episodes.entropy_K.mean()),
        gradient_norm=math.fsum(tally.norms) / len(tally.norms) if tally.norms else None,
        trained_dialogues=tally.dialogues,
        trained_turns=tally.turns,
    )
