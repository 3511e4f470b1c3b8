"""One thread for every test: two workers share two cores, and a process that is forked has no pool of threads.

A random policy for all.
"""

import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell: Ctrl-C is tested, too
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """No test finds another's answers, or the user's."""
    monkeypatch.setenv("DIALRL_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-no-use"))


@pytest.fixture(autouse=True)
def _own_plugins(monkeypatch):
    """No test finds a part that another registered as an installed package's."""
    from dialrl import plugins

    monkeypatch.setattr(plugins, "_loaded", {})


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    """Directory of a random tiny policy of the demo world."""
    from tests.policies import random_policy

    return random_policy(tmp_path_factory.mktemp("random-policy"))
