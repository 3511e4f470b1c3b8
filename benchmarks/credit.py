"""Time and memory of ``returns`` and ``advantage`` beside pyarrow alone, and their arithmetic beside verl's.

    pip install --no-deps --target PEER verl        (anywhere outside this project; read, never imported by dialrl)
    python benchmarks/credit.py [--turns 1000000 4000000] [--peer PEER] [-o benchmarks/results/credit.json]

Everything is measured in one run, each figure in a process of its own, the best of ``--repeats``:
- a stage on a file of N synthetic turns (groups of 8 dialogues of 5 turns), whole and slim;
- *pyarrow alone*: reading the columns the stage reads (a whole output: all of them) in batches of the same size, and
  writing the columns of its output with the same compression, encodings and row groups;
- peak memory (VmHWM) of both, at each size: bounded by ``batch_rows`` and the largest group, not by the file;
- the arithmetic alone, one thread: Arrow columns in memory (string keys, rewards) to advantages, files excluded,
  against ``compute_grpo_vectorized_outcome_advantage`` of verl, one row a response of one token (its least work), with
  the uuid strings its trainer labels groups by, and with integers (which it need not sort: its best case).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from result_file import show

STAGES = ("returns", "advantage")
FORMS = ("whole", "slim")
PRESET = "mapo"  # a turn term and a batch term: the most expensive published one
BATCH_ROWS = (16_384, 65_536, 262_144)
TARGETS = {"stage_over_pyarrow_at_most": 3.0, "arithmetic_over_verl_at_least": 10.0}


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "machine": _machine(),
            "versions": _child("versions"),
            "repeats": arguments.repeats,
            "load_average_before": round(os.getloadavg()[0], 2),
            "preset": PRESET,
            "targets": TARGETS,
            "files": [_files(Path(folder), turns, arguments.repeats) for turns in arguments.turns],
            "arithmetic": _arithmetic(Path(folder), arguments),
        }
    show(result, arguments.output)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--peer", type=Path, help="folder into which verl was installed; without it no peer is measured"
    )
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


def _files(folder: Path, turns: int, repeats: int) -> dict[str, Any]:
    """Both stages in both forms on one file; the slim advantage completes the slim returns."""
    judged = folder / f"judged-{turns}.parquet"
    _child("make", judged, turns)
    found: dict[str, Any] = {"turns": turns}
    for form in FORMS:
        source = judged
        for stage in STAGES:
            output = folder / f"{stage}-{form}-{turns}.parquet"
            ours, alone = _best_of_both(repeats, stage, form, source, output)
            found[f"{stage} {form}"] = {
                "seconds": ours["seconds"],
                "pyarrow_seconds": alone["seconds"],
                "ratio": round(ours["seconds"] / alone["seconds"], 2),
                "peak_mib": ours["peak_mib"],
                "peak_mib_before": ours["peak_mib_before"],
            }
            source = output
    found["peak_mib_by_batch_rows"] = {
        str(rows): _child("stage", "advantage", "whole", folder / f"returns-whole-{turns}.parquet", output, rows)[
            "peak_mib"
        ]
        for rows in BATCH_ROWS
    }
    return found


def _arithmetic(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    turns = min(arguments.turns)
    source = folder / f"returns-whole-{turns}.parquet"
    ours = {name: _best_rate(arguments.repeats, "arithmetic", name, source) for name in ("returns", "grpo", "mica")}
    found: dict[str, Any] = {"turns": turns, "rows_a_second": ours}
    if arguments.peer is not None:
        cases = {"string labels": ("strings", 1), "string labels, 256 tokens": ("strings", 256)}
        cases["integer labels"] = ("integers", 1)
        peer = {
            name: _best_rate(arguments.repeats, "peer", arguments.peer, labels, turns if width == 1 else 100_000, width)
            for name, (labels, width) in cases.items()
        }
        version = next((path.name.split("-")[1] for path in arguments.peer.glob("verl-*.dist-info")), "unknown")
        found["peer"] = f"verl {version.removesuffix('.dist')} compute_grpo_vectorized_outcome_advantage"
        found["peer_rows_a_second"] = peer
        usual = peer["string labels"]  # its trainer labels groups by uuid strings
        found["ratio"] = {name: round(rate / usual, 1) for name, rate in ours.items()}
    return found


def _best_of_both(repeats: int, *piece: object) -> tuple[dict[str, float], dict[str, float]]:
    """The best run of the stage and of pyarrow alone, taken in turns so that a busy moment meets both."""
    runs = [(_child("stage", *piece), _child("pyarrow", *piece)) for _ in range(repeats)]
    ours, alone = (min(side, key=lambda run: run["seconds"]) for side in zip(*runs, strict=True))
    return ours, alone


def _best_rate(repeats: int, *command: object) -> float:
    return max(_child(*command)["rows_a_second"] for _ in range(repeats))


def _child(*command: object) -> Any:
    script = Path(__file__).with_name("credit_pieces.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, *map(str, command)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _machine() -> dict[str, Any]:
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), None)
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": None if memory is None else round(int(memory) / 2**20, 1),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


if __name__ == "__main__":
    main()
