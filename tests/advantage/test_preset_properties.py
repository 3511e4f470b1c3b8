"""Every preset on random ragged groups: equal to plain loops, and the properties of docs/credit.md 2."""

from collections.abc import Sequence

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.advantage.plain_credit import PLAIN, Group, Plain, plain_advantages, spread

from credit_files import line_before, rows_of
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.resolve import Origin
from dialrl.advantage.work import add_advantages
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import add_returns, returns_record
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.rows import rows_to_table

PRESETS = sorted(PLAIN)
ANY_LENGTH = ("dr-grpo", "grpo", "mapo", "mica", "mt-grpo", "reinforce++", "reinforce++-baseline", "rloo", "turn-only")
WITHIN_GROUPS = ("mica", "turn-only", "group-only", "grpo", "dr-grpo", "rloo", "mt-grpo", "gigpo")
GIVEN = ReturnsConfig(reward=("given",), max_missing=1.0)
ORIGIN = Origin.of(Lineage((returns_record(GIVEN),)), where="memory")

REWARDS = st.integers(-8, 8).map(lambda quarter: quarter / 4)
COMPLETE = st.lists(st.lists(st.lists(REWARDS, min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=4)
WITH_GAPS = st.lists(
    st.lists(st.lists(st.none() | REWARDS, min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=4
).filter(lambda groups: any(reward is not None for group in groups for dialogue in group for reward in dialogue))


def credit(groups: Sequence[Group], presets: Sequence[str] = PRESETS) -> dict[str, np.ndarray]:
    """Rewards through both stages in memory: the advantages of each preset, NaN for null."""
    table = add_returns(rows_to_table(rows_of({f"g{index}": group for index, group in enumerate(groups)})), GIVEN)
    made = {preset: add_advantages(table, ORIGIN, AdvantageConfig(preset=preset, gamma=0.85)) for preset in presets}
    return {preset: numbers(table["advantage"].to_pylist()) for preset, table in made.items()}


def numbers(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def assert_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float) -> None:
    for preset, values in want.items():
        np.testing.assert_allclose(got[preset], values, rtol=0, atol=tolerance, err_msg=preset)


@given(WITH_GAPS)
@settings(max_examples=30, deadline=None)
def test_every_preset_equals_plain_loops(groups: list[Group]) -> None:
    assert_equal(credit(groups), {preset: numbers(plain_advantages(groups, preset)) for preset in PRESETS}, 1e-9)


@given(COMPLETE, st.sampled_from([1e-3, 0.5, 1e3]))
@settings(max_examples=25, deadline=None)
def test_scaling_the_rewards_changes_nothing(groups: list[Group], factor: float) -> None:
    assume(widely_spread(groups))
    scaled = [[[factor * reward for reward in dialogue] for dialogue in group] for group in groups]
    want = credit(groups)
    for preset in ("dr-grpo", "rloo"):
        want[preset] *= factor
    largest = max(1.0, *(float(np.abs(values).max()) for values in want.values()))
    assert_equal(credit(scaled), want, 1e-4 * largest)


def widely_spread(groups: Sequence[Group]) -> bool:
    """Every pool of every preset is degenerate or has a spread of at least .1."""
    plain = Plain(groups, 0.85)
    indices = range(len(groups))
    turns = [[value for k, value in plain.known_returns(g) if k == turn] for g in indices for turn in range(5)]
    pools = [*turns, plain.all_returns(), plain.all_rewards(), plain.all_sums(), plain.all_off_group(), *plain.sums]
    pools += [[value for _, value in plain.known_returns(g)] for g in indices]
    pools += [plain.known_rewards(g) for g in indices]
    for group, returns in zip(groups, plain.returns, strict=True):
        turns = [(d, k) for d, dialogue in enumerate(group) for k in range(len(dialogue))]
        pools += [[returns[d][k] for d, k in turns if line_before(d, k) == line] for line in "pq"]
        pools += [[group[d][k] for d, k in turns if k == turn] for turn in range(5)]
    return all(not pool or spread(pool) < 1e-12 or spread(pool) >= 0.1 for pool in pools)


def evened(groups: Sequence[Group], length: int) -> list[Group]:
    """The groups with every dialogue cut or repeated to ``length`` turns."""
    return [[(list(dialogue) * length)[:length] for dialogue in group] for group in groups]


@given(COMPLETE, st.integers(1, 5), st.floats(-1000, 1000))
@settings(max_examples=25, deadline=None)
def test_shifting_the_rewards_of_dialogues_of_equal_length_changes_nothing(
    groups: list[Group], length: int, shift: float
) -> None:
    even = evened(groups, length)
    assume(widely_spread(even))
    shifted = [[[reward + shift for reward in dialogue] for dialogue in group] for group in even]
    assert_equal(credit(shifted, ANY_LENGTH), credit(even, ANY_LENGTH), 1e-4)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.floats(-100, 100))
@settings(max_examples=25, deadline=None)
def test_equal_rewards_in_dialogues_of_equal_length_give_exact_zeros(
    groups: int, length: int, samples: int, reward: float
) -> None:
    equal = [[[reward] * length] * samples] * groups
    for preset, values in credit(equal, ANY_LENGTH).items():
        assert values.tolist() == [0.0] * (groups * length * samples), preset


@given(WITH_GAPS)
@settings(max_examples=25, deadline=None)
def test_a_group_does_not_depend_on_the_others(groups: list[Group]) -> None:
    groups = [group for group in groups if any(r is not None for dialogue in group for r in dialogue)]
    together = credit(groups, WITHIN_GROUPS)
    alone = [credit([group], WITHIN_GROUPS) for group in groups]
    assert_equal({name: np.concatenate([one[name] for one in alone]) for name in WITHIN_GROUPS}, together, 1e-12)


def test_a_group_of_one_is_finite() -> None:
    for rewards in ([0.5], [0.5, 1.0, -1.0]):
        for preset, values in credit([[rewards]]).items():
            assert np.isfinite(values).all(), preset
