"""The preset itpo: values by hand, plain loops on random groups, and what the terms behind it refuse."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.advantage.plain_credit import Group, Plain, mean, spread
from tests.advantage.test_preset_pages import numbers, tables
from tests.advantage.test_preset_properties import WITH_GAPS

from credit_files import GOLDEN, advantage_of, by_dialogue, flat, returns_of, rows_of, write
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.estimate import needs_whole_file
from dialrl.advantage.pools import Moments
from dialrl.advantage.presets import preset
from dialrl.advantage.resolve import Origin
from dialrl.advantage.terms import Term
from dialrl.advantage.work import add_advantages
from dialrl.config import validated
from dialrl.errors import InputError, UsageError
from dialrl.ragged import Runs
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.work import add_returns, returns_record
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.rows import rows_to_table

IMPLICIT = ReturnsConfig(reward=("implicit",), max_missing=1.0)
ORIGIN = Origin.of(Lineage((returns_record(IMPLICIT),)), where="memory")
# First the sums, by hand: in g0 the dialogues' means are .7667 and .45, so a reward r counts 2 r - 1.2167; in g1 both
# are .4667, 2 r - .9333. Their mean over all eleven turns is .0409, their spread .5197.
SUMS = [[(0.95, 0.1667, 0.3833), (-0.6333, -0.0167)], [(0.0, -0.4667, 0.8667), (0.0, -0.0667, -0.7333)]]


def implicit_rows(groups: dict[str, Group]) -> list[dict[str, object]]:
    rows = rows_of(groups)
    return [{"implicit_reward" if name == "reward_given" else name: row[name] for name in row} for row in rows]


def credit(groups: Sequence[Group]) -> np.ndarray:
    rows = implicit_rows({f"g{index}": group for index, group in enumerate(groups)})
    table = add_advantages(add_returns(rows_to_table(rows), IMPLICIT), ORIGIN, AdvantageConfig(preset="itpo"))
    return np.array([np.nan if value is None else value for value in table["advantage"].to_pylist()])


def plain(groups: Sequence[Group]) -> np.ndarray:
    """The same by loops over dialogues."""
    filled = Plain(groups, 1.0).filled
    sums, known = [], []
    for group, rewards in zip(groups, filled, strict=True):
        owns = [[value for value in dialogue if value is not None] for dialogue in group]
        means = [mean(own) for own in owns if own]
        everyone = [value for own in owns for value in own]
        others = len(means) - 1
        same = others < 1 or spread(everyone) <= 1e-6 * max(1.0, abs(mean(means)))
        for dialogue, own in zip(group, rewards, strict=True):
            centred = [0.0 if same else (r * len(means) - math.fsum(means)) / others for r in own]
            sums += [math.fsum(centred[turn:]) for turn in range(len(centred))]
            known += [value is not None for value in dialogue]
    pool = [value for value, counts in zip(sums, known, strict=True) if counts]
    flat_pool = len(pool) < 2 or spread(pool) <= 1e-6 * max(1.0, abs(mean(pool)))
    whitened = [0.0 if flat_pool else (value - mean(pool)) / (spread(pool) + 1e-8) for value in sums]
    return np.array([value if counts else np.nan for value, counts in zip(whitened, known, strict=True)])


def test_the_golden_groups_by_hand(tmp_path: Path) -> None:
    returned, _ = returns_of(write(tmp_path / "turns.parquet", implicit_rows(GOLDEN)), reward=("implicit",))
    rows, summary = advantage_of(returned, preset="itpo")
    values = flat(SUMS)
    want = [(value - mean(values)) / spread(values) for value in values]
    assert (mean(values), spread(values)) == pytest.approx((0.0409, 0.5197), abs=1e-4)
    assert [row["advantage"] for row in rows] == pytest.approx(want, abs=2e-4)
    assert "dialogue-means" in summary.figures["terms"]["implicit"]
    assert summary.figures["pools"]["implicit: batch"]["mean_spread"] == pytest.approx(0.5197, abs=1e-4)


def test_the_table_of_its_page_is_what_it_computes(tmp_path: Path) -> None:
    rows = tables("itpo")[0]
    assert [numbers(row[1]) for row in rows] == [list(rewards) for group in GOLDEN.values() for rewards in group]
    returned, _ = returns_of(write(tmp_path / "turns.parquet", implicit_rows(GOLDEN)), reward=("implicit",))
    got, _ = advantage_of(returned, preset="itpo")
    assert [value for row in rows for value in numbers(row[2])] == pytest.approx(flat(SUMS), abs=5.1e-5)
    assert [value for row in rows for value in numbers(row[3])] == pytest.approx(
        flat(list(by_dialogue(got, "advantage").values())), abs=5.1e-5
    )


@given(WITH_GAPS)
@settings(max_examples=40, deadline=None)
def test_it_equals_plain_loops(groups: list[Group]) -> None:
    np.testing.assert_allclose(credit(groups), plain(groups), rtol=0, atol=1e-9)


def test_equal_rewards_and_a_group_of_one_give_zeros() -> None:
    assert credit([[[0.25] * 3, [0.25]], [[0.5]]]).tolist() == [0.0] * 5


def test_reading_the_input_in_pieces_changes_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", implicit_rows(GOLDEN), row_group_rows=5)
    returned, _ = returns_of(source, reward=("implicit",))
    whole, pieces = (advantage_of(returned, preset="itpo", batch_rows=rows)[0] for rows in (100, 1))
    assert [row["advantage"] for row in pieces] == pytest.approx([row["advantage"] for row in whole], abs=1e-12)


def test_a_file_without_the_channel_is_told_how_to_get_it(tmp_path: Path) -> None:
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of(GOLDEN)))
    with pytest.raises(InputError, match=r"needs the channel 'implicit'.*--reward implicit"):
        advantage_of(returned, preset="itpo")


def test_dialogues_count_alike_however_many_turns_they_have() -> None:
    values = np.array([1.0, 0.5, 0.8, 0.3, 0.6])
    moments, deviation = Moments.by_dialogue(
        values, None, Runs(np.array([0, 5])), Runs(np.array([0, 3, 5])), Runs(np.array([0, 2]))
    )
    assert moments.number_P.tolist() == [2.0]
    assert moments.mean_P == pytest.approx([0.6083], abs=1e-4)
    assert deviation[0] == pytest.approx(0.3917, abs=1e-4)


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ({"scale": "dialogue-means"}, "no spread of its own"),
        ({"whiten": "batch", "centre": "batch"}, "smaller scopes"),
        ({"whiten": "batch", "accumulate": "sum", "centre": "dialogue-batch"}, "smaller scopes"),
        (
            {
                "pooled_with": "outcome", "centre": "dialogue-means", "accumulate": "return",
                "order": "normalise-then-return",
            },
            "leave pooled_with out",
        ),
    ],
)  # fmt: skip
def test_terms_that_contradict_themselves_are_refused(term: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        validated(Term, {"name": "x", **term}, where="x")


def test_its_term_reads_the_whole_input_first() -> None:
    (term,) = preset("itpo").terms
    assert needs_whole_file(term)
