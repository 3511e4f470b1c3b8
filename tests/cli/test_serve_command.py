"""``dialrl serve``: says where it listens, and ends in order."""

import pytest
import torch
from tests.toys import CHATML, tiny_policy

from dialrl.engine.serving.server import ModelServer


@pytest.fixture
def place(tmp_path):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path / "tiny", chat_template=CHATML)


def test_it_names_model_and_address_and_ends_with_an_interruption(run, place, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelServer, "serve_forever", interrupted)
    monkeypatch.setattr(ModelServer, "shutdown", lambda self: None)
    ended = run("serve", "--policy", place, "--port", "0", "--name", "small", "--quiet")
    assert ended.code == 0
    assert ended.out.startswith("small: http://127.0.0.1:")
    assert "Ended." in ended.err
    found = run("serve", "--policy", place, "--port", "0", "--json").json
    assert found["models"] == ["tiny", str(place)]


def test_a_model_that_is_nowhere_and_a_port_that_is_none_are_wrong_uses(run, tmp_path):
    assert run("serve", "--policy", tmp_path / "nowhere").code == 2
    assert run("serve", "--policy", "demo-policy", "--port", "70000").code == 2
