"""``dialrl lab noise``: which credit rule stands a faulty judge.

Presets learn from judges with one fault each, at several strengths, and are measured by the world's true rewards. Step
sizes are chosen with an exact judge and kept, as somebody would who does not know the judge's faults. The table is that
of a study (one setting a fault), so ``dialrl report`` reads it. Not here: runs (``fast``), resume (``study``).
"""

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dialrl.environment.demo.rules import Levels
from dialrl.environment.demo.scenario import DemoScenario
from dialrl.errors import UsageError
from dialrl.judge.demo import DemoJudge
from dialrl.lab.fast import play_fast
from dialrl.lab.pool import Done, Job, workers
from dialrl.lab.runs import Phase, RunResult, prepare_runs
from dialrl.lab.settings import Setting
from dialrl.lab.studies_config import FaultyConfig, NoiseConfig
from dialrl.lab.study import TABLE, Study, check_presets
from dialrl.lab.summary import study_summary
from dialrl.lab.table import write_table
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.atomic import exclusive

EXACT = "exact"
KINDS = ("noise", "missing", "lenient", "halo")
FAULTS: Mapping[str, str] = MappingProxyType({kind: f"judge_{kind}" for kind in KINDS})


class FaultyJudge(DemoJudge):
    """The demo judge with two faults that have a direction, drawn from (seed, scenario, turn) like the others.

    ``lenient``: probability that a level below 0 is seen as 0. ``halo``: probability that a reply without a level above
    0 is credited with one step on P. Both come before noise.
    """

    def __init__(self, noise: float, missing: float, extra_trust: int, *, lenient: float, halo: float) -> None:
        super().__init__(noise, missing, extra_trust)
        self.lenient = lenient
        self.halo = halo

    def seen_levels(self, levels: Levels, scenario: DemoScenario, turn: int, seed: int) -> Levels | None:
        draws = random.Random(f"faulty judge {seed} {scenario.scenario_id} {turn}")
        seen = Levels(*(0 if level < 0 and draws.random() < self.lenient else level for level in levels))
        if max(levels) <= 0 and draws.random() < self.halo:
            seen = seen._replace(p_prog=1)
        return super().seen_levels(seen, scenario, turn, seed)


def judge_of(config: FaultyConfig) -> FaultyJudge:
    """The judge that ``config`` describes."""
    return FaultyJudge(
        config.judge_noise,
        config.judge_missing,
        config.extra_trust,
        lenient=config.judge_lenient,
        halo=config.judge_halo,
    )


def play_faulty(job: Job) -> Done:
    """One run with a faulty judge: its learning curve, by true rewards, and the seconds it took."""
    options, reference = job
    config, began = FaultyConfig(**options), time.monotonic()
    return play_fast(config, reference, judge=judge_of(config)).curve, time.monotonic() - began


def fault(name: str) -> Setting:
    """The judge ``name`` as a setting. Raises UsageError for what is neither exact nor FAULT=STRENGTH.

    Example: ``noise=0.2`` -> the change ``judge_noise: 0.2``.
    """
    if name == EXACT:
        return Setting(EXACT, "the judge sees what is so", {})
    kind, _, strength = name.partition("=")
    try:
        changes = {FAULTS[kind]: float(strength)}
    except (KeyError, ValueError):
        raise UsageError(
            f"'{name}' is no judge: expected {EXACT}, or {'=, '.join(FAULTS)}= with a probability, such as noise=0.2."
        ) from None
    return Setting(name, f"{kind} with probability {strength}", changes)


def run_noise(
    folder: Path,
    config: NoiseConfig | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Run ``config`` in ``folder`` and write ``lab.parquet`` there.

    ``resume`` plays only the runs that are not there yet; ``overwrite`` begins anew. Raises UsageError for an unknown
    fault or preset, OutputExistsError for a folder that holds runs.
    """
    config = config or NoiseConfig()
    check_presets(config)
    judges = [fault(name) for name in config.settings]
    with exclusive(folder / ".lock", f"The study '{folder}'"), workers(config.jobs) as pool:
        prepare_runs(folder / "runs", overwrite=overwrite, resume=resume)
        return NoiseStudy(folder, config, pool, progress).run(judges)


class NoiseStudy(Study):
    """One call of ``run_noise``."""

    run_config = FaultyConfig
    job = staticmethod(play_faulty)

    def run(self, worlds: Sequence[Setting]) -> StageSummary:
        config, table = self.config, self.folder / TABLE
        exact = fault(EXACT)
        reference = self._references([exact])[exact.turn_limit, exact.extra_trust]
        number = len(config.presets) * (len(config.step_sizes) * config.tuning_seeds + config.seeds * len(worlds))
        self._kept = self._finished_before(exact, worlds)
        self.progress.start("lab noise", number - len(self._kept), "runs")
        tuned = self._play(exact, reference, self._tuning_runs())
        chosen = self._choices(exact, tuned)
        runs: list[tuple[Phase, RunResult]] = [("tuning", run) for run in tuned]
        for world in worlds:
            runs += [("final", run) for run in self._play(world, reference, self._final_runs(chosen))]
            write_table(table, runs)
        edges = [f"{one.preset} ({one.step_size:g})" for one in chosen if one.at_edge]
        counts = {"runs": len(runs), "played_now": self.played}
        return study_summary(table, config.compare_with, counts, edges, stage="lab noise")
