"""The single measurements of ``credit.py``, each run in a process of its own: prints one JSON line."""

import importlib.util
import json
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from credit import PRESET
from credit_data import write_judged

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.estimate import compute_term
from dialrl.advantage.resolve import Origin, resolved_terms
from dialrl.advantage.signals import SignalBatch
from dialrl.advantage.stage import compute_advantages
from dialrl.advantage.work import AdvantageWork, weighted_sum
from dialrl.returns.channels import chosen_channels
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.returns.work import ReturnsWork
from dialrl.trajectory.lineage import package_versions
from dialrl.trajectory.reader import BATCH_ROWS, TrajectoryFile
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.writer import ROW_GROUP_ROWS

BATCH = ReturnsConfig().batch_rows


def peak_mib() -> float:
    """Peak resident memory of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def timed(work: Callable[[], object]) -> dict[str, float]:
    before = peak_mib()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 4), "peak_mib": peak_mib(), "peak_mib_before": before}


def stage(name: str, form: str, source: Path, output: Path, batch_rows: int = BATCH) -> dict[str, float]:
    """One stage on one file."""
    slim = form == "slim"
    if name == "returns":
        settings = ReturnsConfig(batch_rows=batch_rows)
        return timed(lambda: compute_returns(source, output, settings, overwrite=True, slim=slim))
    config = AdvantageConfig(preset=PRESET, batch_rows=batch_rows)
    return timed(lambda: compute_advantages(source, output, config, overwrite=True, slim=slim))


def pyarrow_alone(name: str, form: str, source: Path, output: Path) -> dict[str, float]:
    """Reading what the stage reads, writing what it wrote; the output is in memory before the clock runs."""
    columns = _read_by(name, source) if form == "slim" else TrajectoryFile.open(source).names
    made = pq.read_table(output)
    target = output.with_name("pyarrow.parquet")

    def work() -> None:
        for path, names in _files_of(source, columns):
            for _ in pq.ParquetFile(path).iter_batches(batch_size=BATCH, columns=names):
                pass
        dictionary = [n for n in made.column_names if n.endswith(("_id", "_status")) or n == "stop_turn"]
        pq.write_table(
            made,
            target,
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionary,
            row_group_size=ROW_GROUP_ROWS,
        )

    return timed(work)


def _read_by(name: str, source: Path) -> list[str]:
    opened = TrajectoryFile.open(source)
    if name == "returns":
        config = ReturnsConfig()
        return [*KEYS, *ReturnsWork(opened.names, chosen_channels(config), config, lambda _: iter(())).reads]
    config = AdvantageConfig(preset=PRESET)
    return [*KEYS, *_advantage_work(opened, config).reads]


def _files_of(source: Path, columns: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """The file (and, for a slim one, its parents) with the columns each holds."""
    shard = TrajectoryFile.open(source).shards[0]
    left = list(columns)
    while shard is not None and left:
        here = [name for name in left if name in shard.schema.names]
        yield shard.path, here
        left = [name for name in left if name not in here]
        shard = shard.parent


def _advantage_work(opened: TrajectoryFile, config: AdvantageConfig) -> AdvantageWork:
    origin = Origin.of(opened.lineage, where=opened.where)
    return AdvantageWork(resolved_terms(config, origin)[0], origin, config, lambda names: opened.groups(names))


def arithmetic(name: str, source: Path) -> dict[str, float]:
    """Tables in memory to numpy results: ``returns``, or ``advantage`` with the preset ``name``."""
    opened = TrajectoryFile.open(source)
    work = _returns_arithmetic(opened) if name == "returns" else _advantage_arithmetic(opened, name)
    tables = list(opened.groups(None, BATCH_ROWS))
    rows = sum(table.num_rows for table in tables)
    rate = 0.0
    for _ in range(5):
        start = time.perf_counter()
        for table in tables:
            work(table)
        rate = max(rate, rows / (time.perf_counter() - start))
    return {"rows_a_second": round(rate)}


def _returns_arithmetic(opened: TrajectoryFile) -> Callable[[pa.Table], object]:
    config = ReturnsConfig()
    return ReturnsWork(opened.names, chosen_channels(config), config, lambda _: iter(())).compute


def _advantage_arithmetic(opened: TrajectoryFile, preset: str) -> Callable[[pa.Table], object]:
    origin = Origin.of(opened.lineage, where=opened.where)
    terms, _ = resolved_terms(AdvantageConfig(preset=preset), origin)

    def work(table: pa.Table) -> object:
        batch = SignalBatch(table, origin, lambda _: 0.0)
        return weighted_sum(terms, [compute_term(term, batch, origin, None).value_K for term in terms])

    return work


def peer(folder: Path, labels: str, rows: int, width: int) -> dict[str, float]:
    """verl's vectorised group advantage on ``rows`` responses of ``width`` tokens in groups of 8."""
    import torch

    torch.set_num_threads(1)
    algorithm = _load_peer(folder)
    groups = np.repeat(np.arange(rows // 8), 8)
    names = np.array([str(uuid.uuid4()) for _ in range(rows // 8)], dtype=object)
    index = names[groups] if labels == "strings" else groups
    rewards = torch.zeros(len(groups), width)
    rewards[:, -1] = torch.from_numpy(np.random.default_rng(0).normal(size=len(groups))).float()
    mask = torch.ones_like(rewards)
    rate = 0.0
    for _ in range(3):
        start = time.perf_counter()
        algorithm.compute_grpo_vectorized_outcome_advantage(rewards, mask, index)
        rate = max(rate, len(groups) / (time.perf_counter() - start))
    return {"rows_a_second": round(rate)}


def _load_peer(folder: Path) -> Any:
    """verl's file of advantage functions, with empty modules in place of its heavy imports."""

    def stub(name: str, **content: object) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(content)
        module.__path__ = []  # type: ignore[attr-defined]
        sys.modules[name] = module
        return module

    def load(name: str) -> types.ModuleType:
        spec = importlib.util.spec_from_file_location(name, folder / (name.replace(".", "/") + ".py"))
        if spec is None or spec.loader is None:
            raise SystemExit(f"{folder} holds no {name}; install verl there as the benchmark's first lines say.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    stub("omegaconf", DictConfig=dict)
    for name in ("verl", "verl.trainer", "verl.trainer.ppo", "verl.workers", "verl.utils.torch_functional"):
        stub(name)
    stub("verl.trainer.config", AlgoConfig=dict)
    stub("verl.workers.config", ActorConfig=dict)
    utils = stub("verl.utils", torch_functional=sys.modules["verl.utils.torch_functional"])
    stub("verl.utils.device", get_device_name=lambda: "cpu")
    stub("verl.utils.import_utils", deprecated=lambda *_, **__: lambda function: function)
    groupwise = load("verl.utils.groupwise")
    utils.__dict__.update(as_torch_index=groupwise.as_torch_index, group_mean_std=groupwise.group_mean_std)
    return load("verl.trainer.ppo.core_algos")


def main(command: str, *rest: str) -> object:
    if command == "make":
        write_judged(Path(rest[0]), int(rest[1]))
        return {}
    if command == "versions":
        return {"python": sys.version.split()[0], **package_versions("dialrl", "numpy", "pyarrow", "torch")}
    if command == "stage":
        return stage(rest[0], rest[1], Path(rest[2]), Path(rest[3]), *map(int, rest[4:]))
    if command == "pyarrow":
        return pyarrow_alone(rest[0], rest[1], Path(rest[2]), Path(rest[3]))
    if command == "arithmetic":
        return arithmetic(rest[0], Path(rest[1]))
    return peer(Path(rest[0]), rest[1], int(rest[2]), int(rest[3]))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
