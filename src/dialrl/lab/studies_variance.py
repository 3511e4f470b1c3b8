"""``dialrl lab variance``: how much of one batch's gradient is signal, preset by preset.

A policy is held fixed and talks in many batches. Every preset makes credit of the *same* dialogues, and each batch's
gradient is compared with the exact gradient of J (``studies_exact``). The policies lie on the way of the exact
gradient, which favours no preset: where one of them has trained a policy, that one has little left to say. Sizes are
relative to the preset's own mean, because a step size takes care of scale. Two tidy tables: ``variance.parquet`` (a row
a policy, preset and batch) and ``coordinates.parquet`` (a row a policy, preset and weight). Not here: what follows from
them (``studies_figures``).
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dialrl.advantage.presets.registry import preset as preset_by_name
from dialrl.environment.demo.planner import DemoReference, solve
from dialrl.environment.demo.scenario import scenarios
from dialrl.lab.config import FastConfig
from dialrl.lab.fast import training_seats, world_of
from dialrl.lab.fast_credit import Credit
from dialrl.lab.fast_policy import policy_gradient, weak_start
from dialrl.lab.pool import workers
from dialrl.lab.runs import prepare_runs
from dialrl.lab.studies_config import VarianceConfig
from dialrl.lab.studies_exact import ExactWorld, exact_world
from dialrl.lab.studies_figures import variance_summary
from dialrl.progress import SILENT, Progress
from dialrl.ragged import Floats
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import atomic_path, exclusive

BATCHES, COORDINATES = "variance.parquet", "coordinates.parquet"
FIRST_BATCH = 1_000_000  # far from the iterations that trained the policies

Job = tuple[str, dict[str, Any], int]


def run_variance(
    folder: Path,
    config: VarianceConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Run ``config`` in ``folder`` and write both tables there, policy by policy.

    ``resume`` measures only the policies that are not there yet; ``overwrite`` begins anew. Raises UsageError for an
    unknown preset, OutputExistsError for a folder that holds measurements.
    """
    config = config or VarianceConfig()
    for name in config.presets:
        preset_by_name(name)
    parts = folder / "policies"
    with exclusive(folder / ".lock", f"The study '{folder}'"), workers(config.jobs) as pool:
        prepare_runs(parts, overwrite=overwrite, resume=resume)
        missing = [updates for updates in config.updates if not part_of(parts, config, updates, BATCHES).is_file()]
        progress.start("lab variance", len(missing), "policies")
        jobs: list[Job] = [(str(parts), config.model_dump(mode="json"), updates) for updates in missing]
        pool.each(measure, jobs, lambda place, done: progress.advance())
    for name in (COORDINATES, BATCHES):
        found = [pq.read_table(part_of(parts, config, updates, name)) for updates in config.updates]
        _write(folder / name, pa.concat_tables(found))
    return variance_summary(folder / BATCHES, folder / COORDINATES, played_now=len(missing))


def part_of(folder: Path, config: VarianceConfig, updates: int, name: str) -> Path:
    """Where one policy's part of a table stands; other options, another file."""
    options = {key: value for key, value in config.semantic_values().items() if key != "updates"}
    digest = hashlib.blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=6).hexdigest()
    return folder / f"after-{updates}-{digest}-{name}"


def measure(job: Job) -> None:
    """Measure every preset at one policy and write its parts."""
    folder, options, updates = Path(job[0]), job[1], job[2]
    config = VarianceConfig(**options)
    world = exact_world(config.turn_limit)
    weights_FA = policy_after(updates, config.step_size, world)
    exact_FA, share = world.gradient(weights_FA), _reference(config.turn_limit).share(world.value(weights_FA))
    gradients = _gradients(weights_FA, config)
    rows = [
        {"updates": updates, "share": share, "preset": name, **row}
        for name, found in gradients.items()
        for row in _batch_rows(found, exact_FA)
    ]
    places = [row for name, found in gradients.items() for row in _coordinate_rows(updates, name, found, exact_FA)]
    _write(part_of(folder, config, updates, COORDINATES), pa.Table.from_pylist(places))
    _write(part_of(folder, config, updates, BATCHES), pa.Table.from_pylist(rows))


def policy_after(updates: int, step_size: float, world: ExactWorld) -> Floats:
    """(F, A) weights after so many steps along the exact gradient from the weak start."""
    weights_FA = weak_start()
    for _ in range(updates):
        weights_FA = weights_FA + step_size * world.gradient(weights_FA)
    return weights_FA


@cache
def _reference(turn_limit: int) -> DemoReference:
    """Exact values of the training scenarios."""
    return solve(scenarios("train"), turn_limit)


def _gradients(weights_FA: Floats, config: VarianceConfig) -> dict[str, Floats]:
    """Preset -> (B, F, A) the gradient of each batch; all presets see the same dialogues."""
    runs = {name: _run_options(name, config) for name in config.presets}
    credits = {name: Credit(run) for name, run in runs.items()}
    found: dict[str, list[Floats]] = {name: [] for name in config.presets}
    world = world_of(config.turn_limit, 0)
    for batch in range(FIRST_BATCH, FIRST_BATCH + config.batches):
        episodes = world.play(weights_FA, training_seats(batch, runs[config.presets[0]]))
        for name, credit in credits.items():
            advantage_K = credit.advantages(episodes, batch)
            found[name].append(policy_gradient(weights_FA, episodes.features_KF, episodes.choice_K, advantage_K))
    return {name: np.stack(each) for name, each in found.items()}


def _run_options(preset: str, config: VarianceConfig) -> FastConfig:
    return FastConfig(
        preset=preset,
        groups=config.groups,
        samples=config.samples,
        gamma=config.gamma,
        turn_limit=config.turn_limit,
        judge_noise=config.judge_noise,
        seed=config.seed,
    )


def _batch_rows(gradient_BFA: Floats, exact_FA: Floats) -> Iterator[dict[str, Any]]:
    """A row a batch: |g|, g along the exact direction, g . mean g, and the cosine with the exact gradient."""
    mean_FA, size = gradient_BFA.mean(axis=0), float(np.linalg.norm(exact_FA))
    for batch, gradient_FA in enumerate(gradient_BFA):
        norm = float(np.linalg.norm(gradient_FA))
        along = float((gradient_FA * exact_FA).sum()) / size if size > 0.0 else 0.0
        yield {
            "batch": batch,
            "norm": norm,
            "along_exact": along,
            "dot_mean": float((gradient_FA * mean_FA).sum()),
            "cosine": along / norm if norm > 0.0 else None,
        }


def _coordinate_rows(updates: int, preset: str, gradient_BFA: Floats, exact_FA: Floats) -> Iterator[dict[str, Any]]:
    """A row a weight that some batch moved: mean and standard deviation over the batches, and the exact gradient."""
    mean_FA, std_FA = gradient_BFA.mean(axis=0), gradient_BFA.std(axis=0, ddof=1)
    for feature, choice in np.argwhere((std_FA > 0.0) | (exact_FA != 0.0)).tolist():
        yield {
            "updates": updates,
            "preset": preset,
            "feature": feature,
            "choice": choice,
            "mean": float(mean_FA[feature, choice]),
            "std": float(std_FA[feature, choice]),
            "exact": float(exact_FA[feature, choice]),
        }


def _write(path: Path, table: pa.Table) -> None:
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
