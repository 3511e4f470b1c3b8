"""Credit for dialogues in memory: the judge's levels as a judged table, then the stages' own arithmetic.

The table holds the columns that the judge writes into a file; the arithmetic is that of ``dialrl returns`` and
``dialrl advantage``, so a run in memory and a run through files take the same steps (a test holds it bit for bit).
"""

import numpy as np
import pyarrow as pa

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.resolve import Origin, resolved_terms
from dialrl.advantage.work import AdvantageWork
from dialrl.environment.demo.rules import Levels, initial_deficit
from dialrl.judge.demo import DemoJudge
from dialrl.lab.config import FastConfig
from dialrl.lab.fast_world import Episodes
from dialrl.ragged import Flags, Floats
from dialrl.returns.channels import chosen_channels
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import ReturnsWork, returns_record
from dialrl.seeds import seed_for
from dialrl.trajectory.layout import floats
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.schema import KEYS

_STATE = ("deficit", "position")  # what the anchor below reads


class Credit:
    """Judge and estimator of one run: ``advantages`` of a batch of dialogues."""

    def __init__(self, config: FastConfig, judge: DemoJudge | None = None) -> None:
        self._judge = judge or DemoJudge(config.judge_noise, config.judge_missing, config.extra_trust)
        self._exact = judge is None and config.judge_noise == config.judge_missing == 0.0
        self._seed = config.seed
        self._returns, self._advantage = returns_config(config), advantage_config(config)
        self._channels = chosen_channels(self._returns)
        self._origin = Origin.of(Lineage().after(returns_record(self._returns)), where="The laboratory's batch")
        self._terms, _ = resolved_terms(self._advantage, self._origin)

    def advantages(self, episodes: Episodes, iteration: int) -> Floats:
        """(K,) the advantage of each turn, NaN where it has none."""
        judged = self.judged(episodes, iteration)
        returns = ReturnsWork(
            judged.column_names, self._channels, self._returns, lambda names: iter([judged.select(names)])
        )
        table = pa.table({**{name: judged[name] for name in (*KEYS, *_STATE)}, **returns.columns(judged)})
        work = AdvantageWork(self._terms, self._origin, self._advantage, lambda names: iter([table.select(names)]))
        return floats(pa.chunked_array([work.columns(table)["advantage"]]))

    def judged(self, episodes: Episodes, iteration: int) -> pa.Table:
        """The columns of a judged file that credit needs."""
        seen = self._seen(episodes, iteration)
        known_K = np.array([levels is not None for levels in seen])
        increment_KA = np.array([(0, 0, 0) if levels is None else levels.increment for levels in seen], np.float64)
        turns_D = np.diff(episodes.start_D)
        needs = [seat.scenario.need for seat in episodes.seats]
        deficit_KA = np.repeat(np.array([initial_deficit(need) for need in needs], np.float64), turns_D, axis=0)
        return pa.table(
            {
                "group_id": pa.array(np.repeat([seat.scenario.scenario_id for seat in episodes.seats], turns_D)),
                "sample": pa.array(np.repeat([seat.sample for seat in episodes.seats], turns_D).astype(np.int32)),
                "turn": pa.array(episodes.turn_K.astype(np.int32)),
                "deficit": _points(deficit_KA),
                "increment": _points(increment_KA, known_K),
                "position": _points(deficit_KA + _walked(increment_KA, episodes)),
                "position_estimated": pa.array(~known_K),
                "judge_status": pa.array(np.where(known_K, "ok", "missing")),
                **_endings(episodes),
            }
        )

    def _seen(self, episodes: Episodes, iteration: int) -> list[Levels | None]:
        if self._exact:
            return list(episodes.levels_K)
        seen: list[Levels | None] = []
        for seat, first, end in zip(episodes.seats, episodes.start_D[:-1], episodes.start_D[1:], strict=True):
            seed = judge_seed(self._seed, iteration, seat.scenario.scenario_id, seat.sample)
            seen += [
                self._judge.seen_levels(levels, seat.scenario, turn, seed)
                for turn, levels in enumerate(episodes.levels_K[first:end])
            ]
        return seen


def returns_config(config: FastConfig) -> ReturnsConfig:
    """The options of ``dialrl returns`` in a run."""
    return ReturnsConfig(reward=config.reward, gamma=config.gamma)


def advantage_config(config: FastConfig) -> AdvantageConfig:
    """The options of ``dialrl advantage`` in a run; states (gigpo) are told apart by what the judge saw so far."""
    return AdvantageConfig(preset=config.preset, gamma=config.gamma, min_std=config.min_std, anchor="position")


def judge_seed(run_seed: int, iteration: int, scenario_id: str, sample: int) -> int:
    """Seed of the judge's faults in one dialogue."""
    return seed_for(run_seed, iteration, scenario_id, sample, 0, "judge")


def _walked(increment_KA: Floats, episodes: Episodes) -> Floats:
    """(K, A) sum of the dialogue's increments so far; whole numbers, so the way of summing changes nothing."""
    total_KA = np.cumsum(increment_KA, axis=0)
    before_DA = np.vstack([np.zeros(3), total_KA])[episodes.start_D[:-1]]
    walked_KA: Floats = total_KA - np.repeat(before_DA, np.diff(episodes.start_D), axis=0)
    return walked_KA


def _points(values_KA: Floats, known_K: Flags | None = None) -> pa.Array:
    """A column of points; null where not known."""
    number_K = np.full(len(values_KA), 3) if known_K is None else np.where(known_K, 3, 0)
    offsets = np.append(0, np.cumsum(number_K)).astype(np.int32)
    flat = values_KA.ravel() if known_K is None else values_KA[known_K].ravel()
    mask = None if known_K is None else pa.array(~known_K)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=mask)


def _endings(episodes: Episodes) -> dict[str, pa.Array]:
    """What stands on each dialogue's last row."""
    rows, last = len(episodes.turn_K), episodes.start_D[1:] - 1
    succeeded, outcome_K = episodes.succeeded_D, np.full(rows, np.nan)
    outcome_K[last] = episodes.gain_D
    reasons = np.full(rows, None, dtype=object)
    reasons[last] = np.where(succeeded, "success", "turn_limit")
    return {
        "end_reason": pa.array(reasons, pa.string()),
        "terminated": pa.array([None if reason is None else reason == "success" for reason in reasons], pa.bool_()),
        "truncated": pa.array([None if reason is None else reason == "turn_limit" for reason in reasons], pa.bool_()),
        "outcome": pa.array(outcome_K, from_pandas=True),
    }
