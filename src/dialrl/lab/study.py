"""``dialrl lab study``: every preset in every setting, at the step size that suits it, on many seeds.

For each setting: every preset at every step size on the tuning seeds; then, at the step size with the best mean final
share, on seeds that no choice has seen. Equal rollouts and equal updates for all. A finished run is a small file of its
own, so a killed study goes on where it was, and a wider plan runs only what is new. Not here: one run (``fast``), what
the figures say (``figures``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dialrl.advantage.presets.registry import preset as preset_by_name
from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import UsageError
from dialrl.lab.config import FastConfig, StudyConfig
from dialrl.lab.markdown import write_markdown
from dialrl.lab.pool import Done, Job, Workers, play_job, workers
from dialrl.lab.runs import Phase, RunFiles, RunKey, RunResult, prepare_runs, read_references, write_references
from dialrl.lab.settings import Setting, setting
from dialrl.lab.summary import study_summary
from dialrl.lab.table import write_table
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import exclusive

TABLE, REFERENCES = "lab.parquet", "references.json"
FIRST_TUNING_SEED = 1_000_000  # far from the seeds of the final runs, which begin at 0
LACKING: Mapping[str, str] = MappingProxyType(
    {"information-gain": "the policy's belief in an answer", "implicit": "an implicit reward model"}
)  # channels that cannot be had here


@dataclass(frozen=True)
class Chosen:
    """The step size of a preset in a setting, and whether it lies at the edge of those tried."""

    setting: str
    preset: str
    step_size: float
    at_edge: bool


def run_study(
    folder: Path,
    config: StudyConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Run ``config`` in ``folder`` and write ``lab.parquet`` there, setting by setting.

    ``resume`` plays only the runs that are not there yet; ``overwrite`` begins anew. Raises UsageError for an unknown
    setting or preset, one that needs a belief, or a folder in use; OutputExistsError for one that holds runs.
    """
    config = config or StudyConfig()
    check_presets(config)
    worlds = [setting(name) for name in config.settings]
    with exclusive(folder / ".lock", f"The study '{folder}'"), workers(config.jobs) as pool:
        prepare_runs(folder / "runs", overwrite=overwrite, resume=resume)
        return Study(folder, config, pool, progress).run(worlds)


class Study:
    """One call of ``run_study``. ``job`` plays a run of the options that ``run_config`` describes."""

    run_config: type[FastConfig] = FastConfig
    job: Callable[[Job], Done] = staticmethod(play_job)

    def __init__(self, folder: Path, config: StudyConfig, pool: Workers, progress: Progress) -> None:
        self.folder, self.config, self.pool, self.progress = folder, config, pool, progress
        self.files = RunFiles(folder / "runs")
        self.played = 0
        self._kept: set[str] = set()

    def run(self, worlds: Sequence[Setting]) -> StageSummary:
        config, table = self.config, self.folder / TABLE
        each = len(config.presets) * (len(config.step_sizes) * config.tuning_seeds + config.seeds)
        references = self._references(worlds)
        self._kept = {name for world in worlds for name in self._finished_before(world, [world])}
        self.progress.start("lab study", each * len(worlds) - len(self._kept), "runs")
        runs: list[tuple[Phase, RunResult]] = []
        chosen: list[Chosen] = []
        for world in worlds:
            exact = references[world.turn_limit, world.extra_trust]
            tuned = self._play(world, exact, self._tuning_runs())
            here = self._choices(world, tuned)
            final = self._play(world, exact, self._final_runs(here))
            chosen += here
            runs += [("tuning", run) for run in tuned] + [("final", run) for run in final]
            write_table(table, runs)
            write_markdown(table, config.compare_with)
        edges = [f"{one.preset} in {one.setting} ({one.step_size:g})" for one in chosen if one.at_edge]
        return study_summary(table, config.compare_with, {"runs": len(runs), "played_now": self.played}, edges)

    @property
    def _seeds(self) -> range:
        return range(self.config.seeds)

    def _finished_before(self, tuned_in: Setting, worlds: Sequence[Setting]) -> set[str]:
        """Files of runs that an earlier call finished: the time left is that of the others. Final runs can be told only
        where the step sizes are chosen already."""
        keys = [self._key(tuned_in, *each) for each in self._tuning_runs()]
        tuned = [run for key in keys if (run := self.files.read(key)) is not None]
        if len(tuned) == len(keys):
            final = self._final_runs(self._choices(tuned_in, tuned))
            keys += [self._key(world, *each) for world in worlds for each in final]
        return {key.file_name for key in keys if self.files.has(key)}

    def _choices(self, world: Setting, tuned: Sequence[RunResult]) -> list[Chosen]:
        return [choose(world.name, preset, tuned, self.config.step_sizes) for preset in self.config.presets]

    def _final_runs(self, chosen: Sequence[Chosen]) -> list[tuple[str, float, int]]:
        return [(one.preset, one.step_size, seed) for one in chosen for seed in self._seeds]

    def _tuning_runs(self) -> list[tuple[str, float, int]]:
        seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.config.tuning_seeds)
        return [(p, step, seed) for p in self.config.presets for step in self.config.step_sizes for seed in seeds]

    def _references(self, worlds: Sequence[Setting]) -> dict[tuple[int, int], DemoReference]:
        """Exact values of each world; those known from an earlier call are kept, since computing takes a minute."""
        known = read_references(self.folder / REFERENCES)
        wanted = list(dict.fromkeys((world.turn_limit, world.extra_trust) for world in worlds))
        missing = [world for world in wanted if world not in known]
        self.progress.start("exact values", len(missing), "worlds")
        if missing:
            known |= dict(zip(missing, self.pool.references(missing), strict=True))
            write_references(self.folder / REFERENCES, known)
        self.progress.advance(len(missing))
        return known

    def _play(
        self, world: Setting, reference: DemoReference, wanted: Sequence[tuple[str, float, int]]
    ) -> list[RunResult]:
        """The runs (preset, step size, seed) in the order given; those that are not finished are played."""
        keys = [self._key(world, *each) for each in wanted]
        found = {place: run for place, key in enumerate(keys) if (run := self.files.read(key)) is not None}
        missing = [place for place in range(len(keys)) if place not in found]
        self.progress.advance(sum(keys[place].file_name not in self._kept for place in found))

        def finished(number: int, done: Done) -> None:
            run = RunResult(keys[missing[number]], done[0], reference, round(done[1], 3))
            self.files.write(run)
            found[missing[number]] = run
            self.played += 1
            self.progress.advance(share=run.curve[-1].share)

        self.pool.each(self.job, [(dict(keys[place].options), reference) for place in missing], finished)
        return [found[place] for place in range(len(keys))]

    def _key(self, world: Setting, preset: str, step_size: float, seed: int) -> RunKey:
        options = self._options(world, preset, step_size, seed)
        return RunKey("fast", world.name, preset, step_size, seed, options, self.run_config().semantic_values())

    def _options(self, world: Setting, preset: str, step_size: float, seed: int) -> dict[str, Any]:
        config = self.config
        run = self.run_config(
            iterations=config.iterations,
            groups=config.groups,
            samples=config.samples,
            learning_rate=step_size,
            preset=preset,
            gamma=config.gamma,
            min_std=config.min_std,
            seed=seed,
            evaluate_every=config.evaluate_every,
            evaluate_repeats=config.evaluate_repeats,
        ).updated(**world.changes)
        return run.semantic_values()


def choose(setting: str, preset: str, tuned: Sequence[RunResult], step_sizes: Sequence[float]) -> Chosen:
    """The step size with the best mean final share over the tuning seeds; the smaller one of equals."""

    def mean_final(step_size: float) -> float:
        finals = [r.curve[-1].share for r in tuned if (r.key.preset, r.key.step_size) == (preset, step_size)]
        return sum(finals) / len(finals)

    ordered = sorted(step_sizes)
    best = max(ordered, key=mean_final)
    return Chosen(setting, preset, best, at_edge=len(ordered) > 1 and best in (ordered[0], ordered[-1]))


def check_presets(config: StudyConfig) -> None:
    """Refuse presets that do not exist (UsageError) or need what the demo world lacks."""
    for name in config.presets:
        signals = {signal for term in preset_by_name(name).terms for signal in term.signals}
        for channel, what in LACKING.items():
            if channel in signals:
                raise UsageError(f"The preset '{name}' needs {what}; the demo world has none. Leave it out.")
