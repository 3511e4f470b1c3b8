"""The folder of a base policy: it appears when complete, and only an earlier base policy is ever replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dialrl.errors import OutputExistsError
from dialrl.trajectory.atomic import folder_prepared_alone, publish_folder, refuse_place, sync, writing

REPORT_FILE = "report.json"
_PARTS = (REPORT_FILE, "config.json", "model.safetensors", "tokenizer.json")


def refuse_base_policy(output: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError for an output that may not be replaced: any without ``overwrite``, others' folders."""
    refuse_place(output)
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    lacking = [name for name in _PARTS if not (output / name).is_file()]
    if lacking:
        raise OutputExistsError(
            f"The output '{output}' exists and is no base policy (it lacks {', '.join(lacking)}), so it is never"
            " replaced. Name another one, or remove it."
        )
    if not overwrite:
        raise OutputExistsError(f"The output '{output}' exists. Name another one, or use --overwrite to replace it.")


@contextmanager
def base_policy_directory(output: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to fill; it appears as ``output`` when the block is left without error, else it is removed."""
    refuse_base_policy(output, overwrite=overwrite)
    with writing(output), folder_prepared_alone(output) as temporary:
        yield temporary
        (temporary / "model.safetensors").chmod(0o644)  # weights are written readable by the owner alone
        for path in temporary.iterdir():
            sync(path)
        refuse_base_policy(output, overwrite=overwrite)
        publish_folder(temporary, output)
