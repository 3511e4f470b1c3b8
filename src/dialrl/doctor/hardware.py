"""Cores, memory, accelerators, and the place where output goes: its space, and whether it can be written.

Works without torch: GPUs are asked of the driver's own tool. Not here: what a pipeline makes of them.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from dialrl.concurrency import usable_cores
from dialrl.doctor.check import Check
from dialrl.doctor.software import installed
from dialrl.doctor.subject import Subject

AREA = "Machine"
GIB = 2**30
_LITTLE_DISK = 2 * GIB
_DRIVER_SECONDS = 15.0


def hardware(subject: Subject) -> list[Check]:
    """The machine itself."""
    return [_cores(), _memory(), _gpus(subject), _output(subject.output)]


def free_memory() -> int | None:
    """Bytes of memory that are free for a new process, limits of a container included; None where nobody says."""
    amounts = dict(line.split(":", 1) for line in _lines(Path("/proc/meminfo")) if ":" in line)
    available = amounts.get("MemAvailable", "").split()
    if not available:
        return None
    limits = [int(available[0]) * 1024]
    limit, used = _words(Path("/sys/fs/cgroup/memory.max")), _words(Path("/sys/fs/cgroup/memory.current"))
    if limit and used and limit[0].isdigit():
        limits.append(int(limit[0]) - int(used[0]))
    return min(limits)


def _cores() -> Check:
    cores = usable_cores()
    threads = os.environ.get("OMP_NUM_THREADS")
    found = f"{cores} usable" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    return Check(AREA, "cores", "ok", found, details={"cores": cores, "OMP_NUM_THREADS": threads})


def _memory() -> Check:
    free = free_memory()
    if free is None:
        return Check(AREA, "memory", "not applicable", "this system does not say how much is free")
    if free < GIB:
        advice = "The demo needs about 1 GiB. Close other programs, or take a smaller model."
        return Check(AREA, "memory", "warning", f"{size(free)} free", advice, {"free_bytes": free})
    return Check(AREA, "memory", "ok", f"{size(free)} free", details={"free_bytes": free})


def _gpus(subject: Subject) -> Check:
    """GPUs and driver, by nvidia-smi, and whether the installed torch sees them."""
    wanted = subject.device != "cpu"
    gpus = _asked_driver()
    seen = _seen_by_torch() if gpus or wanted else None
    if seen:
        found = "; ".join(gpus) if gpus else "; ".join(seen)
        return Check(AREA, "GPU", "ok", found, details={"gpus": gpus, "torch": seen})
    if gpus:
        advice = "Install a build of torch for this driver: see the selector at pytorch.org."
        why = "torch is not installed" if seen is None else "the installed torch sees none of them"
        return Check(AREA, "GPU", "failed" if wanted else "warning", f"{'; '.join(gpus)}, but {why}", advice)
    if wanted:
        advice = "Run where there is a GPU, or set rollout.device=cpu and update.device=cpu for a small model."
        return Check(AREA, "GPU", "failed", f"none, and the pipeline names device '{subject.device}'", advice)
    return Check(AREA, "GPU", "not applicable", "none: everything runs on the CPU (the demo needs no more)")


def _asked_driver() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = ["--query-gpu=name,memory.total,memory.free,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run([tool, *query], capture_output=True, text=True, timeout=_DRIVER_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(", ") for line in answer.stdout.splitlines() if answer.returncode == 0]
    return [f"{row[0]}, {row[1]} ({row[2]} free), driver {row[3]}" if len(row) == 4 else ", ".join(row) for row in rows]


def _seen_by_torch() -> list[str] | None:
    """Names of the GPUs that torch sees; None without torch."""
    if installed("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _output(place: Path) -> Check:
    """Space and write access of the nearest folder that exists."""
    folder = place.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    details = {"folder": str(folder), "free_bytes": free}
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dialrl-doctor-"):
            pass
    except OSError as error:
        advice = "Name another place with -o, or mend its permissions."
        return Check(AREA, "output", "failed", f"'{folder}' cannot be written: {error.strerror}", advice, details)
    if free < _LITTLE_DISK:
        advice = "A run keeps policies, trainer states and trajectories: see keep_last, save_every."
        return Check(AREA, "output", "warning", f"'{folder}': only {size(free)} free", advice, details)
    return Check(AREA, "output", "ok", f"'{folder}' can be written, {size(free)} free", details=details)


def size(amount: float) -> str:
    """Bytes for people: ``1.5 GiB``, ``300 MiB``."""
    return f"{amount / GIB:,.1f} GiB" if amount >= GIB else f"{amount / 2**20:,.0f} MiB"


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()
