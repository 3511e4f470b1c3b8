"""What a pipeline needs of this machine is found before anything is loaded, and told by a look that runs nothing."""

import pytest

from dialrl.errors import MissingInputError, UsageError
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.train.machine import check_machine, missing_here

torch = pytest.importorskip("torch")


def gpus(monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def pipeline(**sections):
    return PipelineConfig.model_validate(sections)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"update": {"device": "cuda"}}, "update.device is 'cuda'"),
        ({"rollout": {"device": "cuda:0"}}, "rollout.device is 'cuda:0'"),
        ({"train": {"devices": {"rollout": "cpu", "update": "cuda:0,cuda:1"}}}, "update.device is 'cuda:0'"),
    ],
)
def test_a_gpu_where_there_is_none_is_refused_and_nothing_is_left(monkeypatch, tmp_path, sections, key):
    gpus(monkeypatch, 0)
    with pytest.raises(UsageError, match=f"{key}, but torch sees no CUDA device here"):
        train(pipeline(**sections), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    assert key in missing_here(pipeline(**sections))[0]


def test_a_gpu_beyond_those_there_are_is_refused(monkeypatch):
    gpus(monkeypatch, 2)
    check_machine(pipeline(update={"device": "cuda:1"}))
    with pytest.raises(UsageError, match=r"'cuda:2', but torch sees 2 CUDA device\(s\) here: cuda:0 to cuda:1"):
        check_machine(pipeline(update={"device": "cuda:1,cuda:2", "processes": 2}))


def test_a_policy_that_is_a_mere_name_is_told_and_fetched_before_a_run_begins(monkeypatch, tmp_path):
    import huggingface_hub

    def nothing(name, **options):
        raise OSError("Got: ConnectError: no network\nAn error happened while trying to locate the files")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", nothing)
    asked = pipeline(policy="models/nope")
    assert "'models/nope' is no directory here" in missing_here(asked)[0]
    with pytest.raises(MissingInputError, match=r"could be fetched \(ConnectError: no network\)\. Give the path"):
        train(asked, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
