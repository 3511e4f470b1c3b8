"""Seeds name the place of a decision: 63 bits, never shared, equal in every process (field case 26)."""

import hashlib
import os
import subprocess
import sys
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.seeds import SEED_BITS, seed_for

PLACE = st.tuples(
    st.integers(0, 2**63), st.integers(0, 9), st.text(max_size=3), st.integers(0, 9), st.integers(0, 9),
    st.sampled_from(["policy", "user", "judge", ""]), st.integers(0, 3),
)  # fmt: skip


def test_a_known_place_has_a_known_seed():
    # blake2b of the seven parts, each behind its length in 8 bytes; the upper 63 of 64 bits.
    parts = [b"7", b"3", b"demo-train-001", b"2", b"5", b"policy", b"0"]
    hashed = hashlib.blake2b(b"".join(len(part).to_bytes(8, "big") + part for part in parts), digest_size=8).digest()
    assert seed_for(7, 3, "demo-train-001", 2, 5, "policy") == int.from_bytes(hashed, "big") // 2
    assert seed_for(7, 3, "demo-train-001", 2, 5, "policy") == 8970530977041078867


@given(PLACE)
@settings(max_examples=100, deadline=None)
def test_a_seed_has_63_bits_and_fits_the_file(place):
    assert SEED_BITS == 63
    assert 0 <= seed_for(*place) < 2**63


def test_seeds_use_their_whole_width():
    assert max(seed_for(0, 0, "g", sample, 0, "policy") for sample in range(64)) >= 2**62


@given(st.lists(PLACE, min_size=2, max_size=2, unique=True))
@settings(max_examples=100, deadline=None)
def test_two_places_never_share_a_seed(places):
    assert seed_for(*places[0]) != seed_for(*places[1])


def test_members_of_a_group_turns_roles_and_attempts_all_differ():
    places = list(product(range(2), range(2), ["g", "g#1"], range(8), range(10), ["policy", "user", "judge"], range(2)))
    assert len({seed_for(*place) for place in places}) == len(places)


def test_parts_that_only_look_alike_when_joined_differ():
    assert seed_for(1, 23, "g", 0, 0, "policy") != seed_for(12, 3, "g", 0, 0, "policy")
    assert seed_for(0, 0, "g1", 0, 0, "policy") != seed_for(0, 0, "g", 10, 0, "policy")


def test_a_seed_is_the_same_in_every_process():
    program = "from dialrl.seeds import seed_for; print(seed_for(0, 1, 'g', 2, 3, 'user', 1))"
    seeds = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("0", "1234")
    }
    assert seeds == {b"%d\n" % seed_for(0, 1, "g", 2, 3, "user", 1)}
