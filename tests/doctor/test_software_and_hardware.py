"""Versions, extras and the machine: found without loading anything heavy."""

import subprocess
import sys

import pytest

from dialrl.doctor import hardware, software
from dialrl.doctor.check import Check, Diagnosis, absent
from dialrl.doctor.subject import Subject
from dialrl.train.config import PipelineConfig


def named(checks, name):
    return next(check for check in checks if check.name == name)


def without(monkeypatch, *packages):
    real = software.installed
    monkeypatch.setattr(software, "installed", lambda package: None if package in packages else real(package))


def test_a_whole_diagnosis_of_the_light_core_loads_no_framework():
    code = (
        "import sys; from dialrl.doctor.stage import examine, subject_of; found = examine(subject_of());"
        "heavy = {'torch', 'transformers', 'vllm', 'pandas', 'httpx2'} & set(sys.modules);"
        "print(sorted(heavy), len(found.failed))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split("\n")[0] == "[] 0"


def test_an_absent_extra_says_what_it_disables_and_the_line_that_brings_it(monkeypatch):
    without(monkeypatch, "peft")
    check = named(software.software(Subject()), "peft")
    assert (check.status, check.advice) == ("not applicable", "pip install 'dialrl[peft]'")
    assert "adapters" in check.found


@pytest.mark.parametrize(
    ("extra", "package", "sections"),
    [
        ("peft", "peft", {"update": {"lora_rank": 8}}),
        ("wandb", "wandb", {"train": {"track": "wandb"}}),
        ("train", "torch", {}),
        ("openai", "httpx2", {"rollout": {"grading": "live", "judge": "rubric", "judge_options": {"model": "m"}}}),
    ],
)
def test_an_extra_that_the_pipeline_needs_fails_when_it_is_absent(monkeypatch, extra, package, sections):
    without(monkeypatch, package)
    pipeline = PipelineConfig.model_validate(sections)
    assert named(software.software(Subject(pipeline)), extra).status == "failed"
    assert named(software.software(Subject()), extra).status == "not applicable"


@pytest.mark.parametrize(
    ("torch", "transformers", "status"),
    [
        ("2.13.0+cpu", "5.19.0", "ok"),
        ("2.13.1", "5.16.2", "ok"),
        ("2.12.0", "5.19.0", "warning"),
        ("2.13.0", "5.20.0", "warning"),
    ],
)
def test_torch_and_transformers_are_a_tested_pair_or_not(monkeypatch, torch, transformers, status):
    monkeypatch.setattr(software, "installed", {"torch": torch, "transformers": transformers}.get)
    check = software._pair(Subject())
    assert check.status == status
    assert ("a tested pair" in check.found) and (("not a tested" in check.found) == (status == "warning"))


def test_a_gpu_that_the_pipeline_names_and_nobody_has_fails(monkeypatch):
    monkeypatch.setattr(hardware, "_asked_driver", list)
    monkeypatch.setattr(hardware, "_seen_by_torch", list)
    on_gpu = Subject(PipelineConfig.model_validate({"rollout": {"device": "cuda"}}))
    assert hardware._gpus(on_gpu).status == "failed"
    assert hardware._gpus(Subject()).status == "not applicable"


def test_a_gpu_that_torch_does_not_see_is_told_from_none(monkeypatch):
    monkeypatch.setattr(hardware, "_asked_driver", lambda: ["H200, 141 GB (140 GB free), driver 570"])
    monkeypatch.setattr(hardware, "_seen_by_torch", list)
    check = hardware._gpus(Subject())
    assert (check.status, "sees none" in check.found) == ("warning", True)


def test_the_output_is_tried_by_writing_in_the_nearest_folder_and_leaves_nothing(tmp_path):
    check = hardware._output(tmp_path / "runs" / "one")
    assert (check.status, check.details["folder"], list(tmp_path.iterdir())) == ("ok", str(tmp_path), [])


def test_a_place_that_cannot_be_written_fails(tmp_path, monkeypatch):
    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hardware.tempfile, "NamedTemporaryFile", refused)
    assert "cannot be written: Permission denied" in hardware._output(tmp_path).found


def test_free_memory_keeps_to_a_containers_limit(monkeypatch):
    files = {
        "/proc/meminfo": ["MemTotal: 9 kB", "MemAvailable: 4194304 kB"],
        "/sys/fs/cgroup/memory.max": ["3221225472"],
        "/sys/fs/cgroup/memory.current": ["1073741824"],
    }
    monkeypatch.setattr(hardware, "_lines", lambda file: files.get(str(file), []))
    assert hardware.free_memory() == 2 * 2**30
    files["/sys/fs/cgroup/memory.max"] = ["max"]
    assert hardware.free_memory() == 4 * 2**30
    monkeypatch.setattr(hardware, "_lines", lambda file: [])
    assert hardware.free_memory() is None


def test_a_diagnosis_counts_and_is_ready_when_nothing_failed():
    checks = tuple(Check("a", str(number), status, "x") for number, status in enumerate(("ok", "ok", "warning")))
    assert Diagnosis(checks).to_json()["counts"] == {"ok": 2, "warning": 1, "failed": 0, "not applicable": 0}
    assert Diagnosis(checks).to_json()["ready"]
    assert not Diagnosis((*checks, Check("a", "b", absent(needed=True), "x"))).to_json()["ready"]
