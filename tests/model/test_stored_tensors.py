"""Tensors in files: whole or by rows, written by any number of processes; what is damaged is named."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.errors import InputError, MissingInputError
from dialrl.model.digest import policy_digest
from dialrl.model.stored_tensors import read_tensors, stored_tensors, write_tensors

REMEDY = "Write it again."


def written_by(processes: int, tensor: torch.Tensor, folder: Path) -> list[Path]:
    """``tensor`` as so many processes write it: as many rows each as there are, the last ones fewer or none."""
    chunk, files = -(-tensor.shape[0] // processes), []
    for process in range(processes):
        part = tensor[process * chunk : (process + 1) * chunk]
        if len(part):
            files.append(folder / f"{processes}-{process}.safetensors")
            write_tensors({"w": part}, files[-1], {"w": (process * chunk, tensor.shape[0])})
    return files


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5))
def test_what_any_number_of_processes_wrote_any_number_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: int, writers: int, readers: int
) -> None:
    tensor = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2)
    stored = stored_tensors(written_by(writers, tensor, tmp_path_factory.mktemp("w")), remedy=REMEDY)["w"]
    assert stored.shape == (rows, 2)
    assert torch.equal(stored.read(), tensor)
    chunk = -(-rows // readers)
    parts = [stored.read(min(r * chunk, rows), min((r + 1) * chunk, rows)) for r in range(readers)]
    assert torch.equal(torch.cat(parts), tensor)


def test_rows_of_a_process_whose_file_is_missing_are_named(tmp_path: Path) -> None:
    first, second = written_by(2, torch.ones(4, 1), tmp_path)
    assert stored_tensors([second], remedy=REMEDY)["w"].read(2, 4).tolist() == [[1], [1]]
    with pytest.raises(InputError, match=r"lacks rows 2 to 4 of 'w'.*Write it again"):
        stored_tensors([first], remedy=REMEDY)["w"].read()
    with pytest.raises(InputError, match=r"lacks rows 0 to 4 of 'w'"):
        stored_tensors([second], remedy=REMEDY)["w"].read()


def test_a_single_number_is_read_whole(tmp_path: Path) -> None:
    write_tensors({"step": torch.tensor(3.0)}, tmp_path / "a.safetensors")
    assert stored_tensors([tmp_path / "a.safetensors"], remedy=REMEDY)["step"].read() == 3.0


@pytest.mark.parametrize("kept", [0, 4, 30, 150])
def test_a_file_cut_short_is_named_with_what_to_do(kept: int, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_tensors({"w": torch.ones(50)}, file)
    file.write_bytes(file.read_bytes()[:kept])
    (tmp_path / "config.json").write_text("{}")
    for read in (lambda: read_tensors(file, remedy=REMEDY), lambda: stored_tensors([file], remedy=REMEDY)):
        with pytest.raises(InputError, match=r"model\.safetensors' is damaged or cut short.*Write it again"):
            read()
    with pytest.raises(InputError, match=r"model\.safetensors' is (empty|cut short|not a whole)"):
        policy_digest(tmp_path)


def test_a_file_that_is_named_and_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"a\.safetensors' does not exist.*Write it again"):
        read_tensors(tmp_path / "a.safetensors", remedy=REMEDY)
