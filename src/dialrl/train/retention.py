"""Which policies of a run are kept: the latest, every Nth, the best, what a resume needs. Trajectories all stay.
A reward model trained beside the policy is kept for the same iterations.

``best.json`` always says which policy is the best so far; ``best/`` holds it once a trained one is, and at the end of
the run in any case.
"""

import shutil
from pathlib import Path

from dialrl.model.digest import policy_digest
from dialrl.model.loading import model_directory
from dialrl.train.config import TrainConfig
from dialrl.train.run_directory import IterationFolder, RunDirectory, read_json, remove_directory
from dialrl.trajectory.atomic import sync
from dialrl.update.policy_directory import Manifest, atomic_directory


def prune(run: RunDirectory, config: TrainConfig, latest: int) -> None:
    """Remove the policies and reward models that ``config`` does not keep, once iteration ``latest`` is complete."""
    folders = [folder for folder in run.iterations() if folder.number <= latest]
    resumable = max((folder.number for folder in folders if folder.has_trainer_state), default=-1)
    for folder in folders:
        if not _is_kept(folder.number, config, latest, resumable):
            remove_directory(folder.policy)
            remove_directory(folder.reward_model)


def _is_kept(number: int, config: TrainConfig, latest: int, resumable: int) -> bool:
    regular = config.keep_every > 0 and (number + 1) % config.keep_every == 0
    needed = max(config.keep_last, config.lag + 1)  # what goes on rolls out with an older one
    return number > latest - needed or number == resumable or regular


def keep_best(run: RunDirectory, folder: IterationFolder) -> bool:
    """Copy the policy of ``folder`` to ``best/`` if its held-out score is the best so far (ties: the earlier stays)."""
    score = read_json(folder.evaluation)["score"]
    earlier = [f for f in (run.base, *run.iterations()) if f.number < folder.number and f.evaluation.is_file()]
    if any(read_json(f.evaluation)["score"] >= score for f in earlier):
        return False
    _copy_policy(folder.policy, run.best)
    return True


def keep_start(run: RunDirectory, start: str | Path) -> None:
    """At the end of a run in which nothing was better than the policy it started from: that one in ``best/``."""
    if not run.best_record.is_file() or read_json(run.best_record)["iteration"] >= 0 or run.best.exists():
        return
    if (Path(start) / "manifest.json").is_file():
        _copy_policy(Path(start), run.best)
        return
    source = model_directory(start)
    with atomic_directory(run.best, overwrite=False) as folder:
        (folder / "model").mkdir()
        for file in source.iterdir():
            if file.is_file():
                shutil.copy(file, folder / "model" / file.name)
        Manifest(policy_digest(source), parent=None).write(folder)


def _copy_policy(source: Path, target: Path) -> None:
    """Model and manifest, without the trainer's state; complete or not at all."""
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary, ignore=shutil.ignore_patterns("trainer"))
    sync(temporary)
    remove_directory(target)
    temporary.rename(target)
    sync(target.parent)
