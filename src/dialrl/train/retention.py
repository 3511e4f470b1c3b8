"""Which policies of a run are kept: the latest, every Nth, the best, what a resume needs. Trajectories all stay."""

import shutil
from pathlib import Path

from dialrl.train.config import TrainConfig
from dialrl.train.run_directory import IterationFolder, RunDirectory, read_json, remove_directory
from dialrl.trajectory.atomic import sync


def prune(run: RunDirectory, config: TrainConfig, latest: int) -> None:
    """Remove the policies that ``config`` does not keep, once iteration ``latest`` is complete."""
    folders = [folder for folder in run.iterations() if folder.has_policy and folder.number <= latest]
    resumable = max((folder.number for folder in folders if folder.has_trainer_state), default=-1)
    for folder in folders:
        if not _is_kept(folder.number, config, latest, resumable):
            remove_directory(folder.policy)


def _is_kept(number: int, config: TrainConfig, latest: int, resumable: int) -> bool:
    regular = config.keep_every > 0 and (number + 1) % config.keep_every == 0
    return number > latest - config.keep_last or number == resumable or regular


def keep_best(run: RunDirectory, folder: IterationFolder) -> bool:
    """Copy the policy of ``folder`` to ``best/`` if its held-out score is the best so far (ties: the earlier stays)."""
    score = read_json(folder.evaluation)["score"]
    earlier = [f for f in (run.base, *run.iterations()) if f.number < folder.number and f.evaluation.is_file()]
    if any(read_json(f.evaluation)["score"] >= score for f in earlier):
        return False
    _copy_policy(folder.policy, run.best)
    return True


def _copy_policy(source: Path, target: Path) -> None:
    """Model and manifest, without the trainer's state; complete or not at all."""
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary, ignore=shutil.ignore_patterns("trainer"))
    sync(temporary)
    remove_directory(target)
    temporary.rename(target)
    sync(target.parent)
