"""``dialrl compare``: policies on the same scenarios, or advantage presets on the same returns.

Reads judged trajectory files, results files of the benchmarks (one row an item), or advantage files; all of one kind.
Not here: the statistics (``compare_scores``, ``significance``), presets side by side (``compare_advantages``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from dialrl.errors import InputError, UsageError
from dialrl.evaluate.compare_advantages import compare_advantages, same_returns
from dialrl.evaluate.compare_config import CompareConfig
from dialrl.evaluate.compare_scores import Contender, compare_scores, too_small_to_tell
from dialrl.evaluate.dialogue_scores import NEEDS, DialogueScores, numbered
from dialrl.evaluate.item_results import is_item_results, read_item_results
from dialrl.evaluate.naming import short_names
from dialrl.progress import SILENT, Progress
from dialrl.summary import StageSummary
from dialrl.trajectory.reader import TrajectoryFile


def compare(
    inputs: Sequence[Path], config: CompareConfig | None = None, *, progress: Progress = SILENT
) -> StageSummary:
    """Compare two files or more; the first is the one the others are held against.

    Raises UsageError for fewer than two files or kinds that do not go together, InputError for files without a common
    scenario, or advantages of other dialogues.
    """
    config = config or CompareConfig()
    if len(inputs) < 2:
        raise UsageError(f"A comparison needs two files or more; got {len(inputs)}.")
    names = short_names(inputs)
    results = [path.is_file() and is_item_results(path) for path in names.values()]
    if any(results):
        if not all(results) or config.what == "advantages":
            raise UsageError("Results files of benchmarks are compared with one another only, by their scores.")
        return _scored("items", _items_of(names), config)
    sources = {name: TrajectoryFile.open(path) for name, path in names.items()}
    if _wants_advantages(sources, config):
        figures, counts = compare_advantages(sources, config)
        return StageSummary("compare advantages", None, counts, figures)
    progress.start("compare", sum(source.num_rows for source in sources.values()), "turns")
    return _scored("dialogues", [_dialogues(name, one, config, progress) for name, one in sources.items()], config)


def _wants_advantages(sources: dict[str, TrajectoryFile], config: CompareConfig) -> bool:
    opened = list(sources.values())
    have = all("advantage" in source.names for source in opened)
    if config.what == "advantages":
        if not have:
            raise UsageError("Not every file has advantages. Run first: dialrl advantage RETURNS -o OUTPUT")
        if any(source.lineage.record("advantage") for source in opened) and not same_returns(opened):
            raise InputError(
                "The advantages were computed from different returns files; compare presets on the same one."
            )
        return True
    return config.what == "auto" and have and same_returns(opened)


def _items_of(paths: Mapping[str, Path]) -> list[Contender]:
    """Results files of one benchmark; an item without a score is left out and counted."""
    read = {name: read_item_results(path) for name, path in paths.items()}
    benchmarks = sorted({benchmark for benchmark, _ in read.values()})
    if len(benchmarks) > 1:
        raise InputError(f"These are results of different benchmarks ({', '.join(benchmarks)}); compare one at a time.")
    return [_items(name, table) for name, (_, table) in read.items()]


def _items(name: str, table: pa.Table) -> Contender:
    rows = table.select(["scenario_id", "score"]).to_pylist()
    known = [row for row in rows if row["score"] is not None]
    if not known:
        raise InputError(f"'{name}' has no item with a score.")
    values = _by_scenario([row["scenario_id"] for row in known], [row["score"] for row in known])
    return Contender(name, {"score": values}, len(known), len(rows) - len(known))


def _dialogues(name: str, source: TrajectoryFile, config: CompareConfig, progress: Progress) -> Contender:
    source = TrajectoryFile.open([shard.path for shard in source.shards], stage="judge", needs=NEEDS)
    scores = DialogueScores(config.until, config.stop)
    for table in source.groups(numbered(source.names), config.batch_rows):
        scores.add(table)
        progress.advance(table.num_rows)
    if not scores.scenarios:
        raise InputError(f"No dialogue of {source.where} can be scored: all broke or have no judgement.")
    successes = [float(ending == "success") for ending in scores.ending_D]
    columns = {"score": scores.total_D, "success_rate": successes, "turns": [float(n) for n in scores.turns_D]}
    values = {figure: _by_scenario(scores.scenarios, held) for figure, held in columns.items()}
    left_out = scores.counts["broken_dialogues"] + scores.counts["unjudged_dialogues"]
    return Contender(name, values, len(successes), left_out)


def _by_scenario(scenarios: Sequence[str], values: Sequence[float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for scenario, value in zip(scenarios, values, strict=True):
        found.setdefault(scenario, []).append(value)
    return found


def _scored(units: str, contenders: Sequence[Contender], config: CompareConfig) -> StageSummary:
    figures, counts = compare_scores(contenders, config)
    unclear = too_small_to_tell(figures, config)
    warnings = []
    if unclear:
        warnings.append(
            f"Not told from no difference: {'; '.join(unclear)}. See smallest_detectable for what this many scenarios"
            " can show."
        )
    if counts["scenarios_left_out"]:
        warnings.append(f"{counts['scenarios_left_out']} scenarios are not in every file; a pair uses those it shares.")
    names = ("pairs", *(("until",) if units == "dialogues" else ()), "confidence", "power", "resamples", "seed")
    settings = {name: getattr(config, name) for name in names}
    return StageSummary(f"compare {units}", None, counts, {**figures, "settings": settings}, tuple(warnings))
