"""How many threads a tiny model gets: one to generate, two to train, never more than the process was given."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dialrl.model import threads
from dialrl.model.threads import fit_threads, training_threads


class Model:
    def __init__(self, parameters: int, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._parameters = parameters

    def num_parameters(self) -> int:
        return self._parameters


@pytest.fixture(autouse=True)
def threads_as_before(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "_given", [])
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "training"), [(1, 1), (2, 2), (4, 2)])
def test_a_tiny_model_generates_on_one_thread_and_trains_on_two_at_most(given, training):
    torch.set_num_threads(given)
    model = Model(500_000)
    assert fit_threads(model) == 1
    with training_threads(model) as inside:
        assert (inside, torch.get_num_threads()) == (training, training)
    assert torch.get_num_threads() == 1


def test_a_second_tiny_model_does_not_hide_what_the_process_was_given():
    torch.set_num_threads(2)
    fit_threads(Model(500_000))
    fit_threads(Model(400_000))
    with training_threads(Model(400_000)) as inside:
        assert inside == 2


def test_beside_other_work_of_the_process_training_has_one_thread():
    torch.set_num_threads(2)
    model = Model(500_000)
    fit_threads(model)

    def inside() -> int:
        torch.set_num_threads(1)
        with training_threads(model) as threads_in_force:
            return threads_in_force

    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(inside).result() == 1


def test_threads_are_put_back_after_an_error():
    torch.set_num_threads(2)
    model = Model(500_000)
    fit_threads(model)
    with pytest.raises(ValueError, match="the step failed"), training_threads(model):
        raise ValueError("the step failed")
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("model", [Model(7_000_000), Model(500_000, "meta")])
def test_a_larger_model_or_one_elsewhere_keeps_what_there_is(model):
    torch.set_num_threads(3)
    assert fit_threads(model) == 3
    with training_threads(model) as inside:
        assert inside == 3
