"""One thread for every test: the models here are tiny, and two workers share two cores. A random policy for all."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    """Directory of a random tiny policy of the demo world."""
    from tests.policies import random_policy

    return random_policy(tmp_path_factory.mktemp("random-policy"))
