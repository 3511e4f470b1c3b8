"""The scripted user and judge under the name "scripted"."""

import pytest
from tests.scripted import register


@pytest.fixture(autouse=True)
def _scripted(monkeypatch):
    register(monkeypatch)
