"""``dialrl lab cost``: several replies a state against mixed credit, at equal policy turns an update.

Presets make credit of whole dialogues; the branch methods (``studies_branch``) spend the same number of policy turns on
comparing replies to one state. Equal turns, equal updates, each method at the step size that suits it. An exact judge,
the standard world. One tidy table, ``cost.parquet``. Not here: what it says (``studies_figures``).
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.advantage.presets.registry import known_presets
from dialrl.config import nearest
from dialrl.environment.demo.scenario import scenarios
from dialrl.errors import InputError, UsageError
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import reference_of, training_seats, world_of
from dialrl.lab.fast_credit import Credit
from dialrl.lab.fast_policy import policy_gradient, weak_start
from dialrl.lab.fast_world import Seat
from dialrl.lab.pool import workers
from dialrl.lab.runs import prepare_runs
from dialrl.lab.studies_branch import Branching, BranchMethod, Spent, TrainedTurns
from dialrl.lab.studies_config import CostConfig
from dialrl.lab.studies_figures import cost_summary
from dialrl.lab.study import FIRST_TUNING_SEED
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Floats
from dialrl.seeds import seed_for
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import atomic_path, exclusive, write_text

TABLE = "cost.parquet"
BRANCH: tuple[str, ...] = get_args(BranchMethod)
Phase = Literal["tuning", "final"]
Run = tuple[Phase, str, float, int]  # phase, method, step size, seed
Rows = list[dict[str, Any]]


def run_cost(
    folder: Path,
    config: CostConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Run ``config`` in ``folder`` and write ``cost.parquet`` there.

    ``resume`` plays only the runs that are not there yet; ``overwrite`` begins anew. Raises UsageError for an unknown
    method, OutputExistsError for a folder that holds runs.
    """
    config = config or CostConfig()
    _check_methods(config.methods)
    with exclusive(folder / ".lock", f"The study '{folder}'"):
        prepare_runs(folder / "runs", overwrite=overwrite, resume=resume)
        study = _CostStudy(folder / "runs", config, progress)
        rows = study.rows()
        with atomic_path(folder / TABLE) as temporary:
            pq.write_table(pa.Table.from_pylist(rows), temporary, compression="zstd")
    return cost_summary(folder / TABLE, config.compare_with, played_now=study.played, at_edge=study.at_edge)


class _CostStudy:
    """One call of ``run_cost``."""

    def __init__(self, folder: Path, config: CostConfig, progress: Progress) -> None:
        self.folder, self.config, self.progress = folder, config, progress
        self.played = 0
        self.at_edge: list[str] = []

    def rows(self) -> Rows:
        """All runs: those that choose the step sizes, then the fresh seeds."""
        config = self.config
        each = len(config.step_sizes) * config.tuning_seeds + config.seeds
        self.progress.start("lab cost", len(config.methods) * each, "runs")
        seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + config.tuning_seeds)
        tuning: list[Run] = [
            ("tuning", m, s, seed) for m in config.methods for s in config.step_sizes for seed in seeds
        ]
        tuned = self._play(tuning)
        best = {method: best_step(tuned, method) for method in config.methods}
        ends = (min(config.step_sizes), max(config.step_sizes))
        if ends[0] < ends[1]:
            self.at_edge = [f"{method} ({step:g})" for method, step in best.items() if step in ends]
        final: list[Run] = [
            ("final", method, best[method], s) for method in config.methods for s in range(config.seeds)
        ]
        return tuned + self._play(final)

    def _play(self, runs: Sequence[Run]) -> Rows:
        """The rows of ``runs`` in their order; those not stored are played."""
        missing = [run for run in runs if not self._file(run).is_file()]
        self.progress.advance(len(runs) - len(missing))

        def finished(place: int, rows: Rows) -> None:
            write_text(self._file(missing[place]), json.dumps(rows) + "\n")
            self.played += 1
            self.progress.advance(share=rows[-1]["share"])

        options = self.config.model_dump(mode="json")
        with workers(self.config.jobs) as pool:
            pool.each(play_cost, [(options, *run[1:]) for run in missing], finished)
        return [{"phase": run[0], **row} for run in runs for row in _read(self._file(run))]

    def _file(self, run: Run) -> Path:
        _, method, step_size, seed = run
        ignored = ("methods", "step_sizes", "tuning_seeds", "seeds", "compare_with")
        options = {name: value for name, value in self.config.semantic_values().items() if name not in ignored}
        digest = hashlib.blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=6).hexdigest()
        return self.folder / f"{method}-step{step_size:g}-seed{seed}-{digest}.json"


def best_step(rows: Rows, method: str) -> float:
    """The step size with the best mean final share; the smaller one of equals."""
    last = max(row["iteration"] for row in rows)
    finals: dict[float, list[float]] = {}
    for row in rows:
        if row["method"] == method and row["iteration"] == last:
            finals.setdefault(row["step_size"], []).append(row["share"])
    return max(sorted(finals), key=lambda step: sum(finals[step]) / len(finals[step]))


def play_cost(job: tuple[dict[str, Any], str, float, int]) -> Rows:
    """One run of a method: a row an evaluation."""
    options, method, step_size, seed = job
    config, began = CostConfig(**options), time.monotonic()
    weights_FA, spent = weak_start(), Spent()
    batch = _batch_of(method, config, seed)
    rows: Rows = []
    for iteration in range(config.iterations + 1):
        if iteration % config.evaluate_every == 0 or iteration == config.iterations:
            share = _share(weights_FA, config, seed)
            rows.append(
                {"method": method, "step_size": step_size, "seed": seed, "iteration": iteration, "share": share}
            )
            rows[-1] |= {**vars(spent), "seconds": round(time.monotonic() - began, 3)}
        if iteration < config.iterations:
            made = batch(weights_FA, iteration)
            gradient_FA = policy_gradient(weights_FA, made.features_KF, made.choice_K, made.advantage_K)
            weights_FA, spent = weights_FA + step_size * gradient_FA, spent + made.spent
    return rows


def _batch_of(method: str, config: CostConfig, seed: int) -> Callable[[Floats, int], TrainedTurns]:
    """What one update of ``method`` is made of."""
    world = world_of(config.turn_limit, 0)
    if method in BRANCH:
        kind: BranchMethod = "branch-return" if method == "branch-return" else "branch-reward"
        branching = Branching(kind, config.branches, config.groups * config.samples, config.gamma)
        return lambda weights_FA, iteration: branching.batch(world, weights_FA, seed, iteration)
    run = FastConfig(
        preset=method,
        groups=config.groups,
        samples=config.samples,
        turn_limit=config.turn_limit,
        gamma=config.gamma,
        seed=seed,
    )
    credit = Credit(run)

    def dialogues(weights_FA: Floats, iteration: int) -> TrainedTurns:
        episodes = world.play(weights_FA, training_seats(iteration, run))
        turns = len(episodes.turn_K)
        advantage_K = credit.advantages(episodes, iteration)
        return TrainedTurns(episodes.features_KF, episodes.choice_K, advantage_K, Spent(turns, turns, turns))

    return dialogues


def _share(weights_FA: Floats, config: CostConfig, seed: int) -> float:
    """Share of the optimum on the held-out scenarios."""
    seats = [
        Seat(
            scenario,
            sample,
            user_seed=seed_for(seed, -1, scenario.scenario_id, sample, 0, "user"),
            policy_seed=seed_for(seed, -1, scenario.scenario_id, sample, 0, "policy"),
        )
        for scenario in scenarios("test")
        for sample in range(config.evaluate_repeats)
    ]
    value = float(world_of(config.turn_limit, 0).play(weights_FA, seats).gain_D.mean())
    return reference_of(config.turn_limit, 0).share(value)


def _read(path: Path) -> Rows:
    try:
        rows: Rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"'{path}' is no run of the cost study ({error}). Remove it; it is run again.") from None
    return rows


def _check_methods(methods: Sequence[str]) -> None:
    known = [*known_presets(), *BRANCH]
    for method in methods:
        if method not in known:
            raise UsageError(f"Unknown method '{method}'.{nearest(method, known)} Known: {', '.join(known)}.")
