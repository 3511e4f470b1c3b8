"""Field cases 9, 10, 11, 13 and 14: what went wrong elsewhere, as inputs with the right answers."""

from pathlib import Path

import pytest

from credit_files import advantage_of, by_dialogue, credit, flat, returns_of, rows_of, write


@pytest.mark.parametrize("preset", ["turn-only", "grpo", "dr-grpo", "rloo"])
def test_a_group_of_one_gets_zero_and_is_counted(tmp_path: Path, preset: str) -> None:
    # Field case 9: [0.5] -> [0]
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of({"g": [(0.5,)]})))
    rows, summary = advantage_of(returned, preset=preset)
    assert [row["advantage"] for row in rows] == [0.0]
    pools = next(iter(summary.figures["pools"].values()))
    assert (pools["pools"], pools["degenerate"], pools["degenerate_share"]) == (1, 1, 1.0)
    assert any("all 1 pools" in warning and "degenerate" in warning for warning in summary.warnings)


def test_eight_equal_rewards_give_exact_zeros(tmp_path: Path) -> None:
    # Field case 9: [0.3] * 8 -> exact zeros
    for preset in ("mapo", "mica", "turn-only", "grpo", "rloo", "reinforce++", "reinforce++-baseline"):
        assert flat(credit(tmp_path, {"g": [(0.3,)] * 8}, preset=preset)) == [0.0] * 8


def outcomes(**rows_by_name: tuple[int, float | None]) -> list[dict[str, object]]:
    """Dialogues of one group as NAME=(turns, outcome)."""
    rows: list[dict[str, object]] = []
    for sample, (turns, outcome) in enumerate(rows_by_name.values()):
        rows += [{"group_id": "g", "sample": sample, "turn": turn} for turn in range(turns)]
        rows[-1]["outcome"] = outcome
    return rows


def test_an_unscored_dialogue_is_excluded_and_not_a_zero(tmp_path: Path) -> None:
    # Field case 10: baseline over the scored three; zero-filling would give the unscored one +.625.
    source = write(tmp_path / "turns.parquet", outcomes(a=(1, -1.0), b=(1, -1.0), c=(1, -0.5), d=(1, None)))
    returned, _ = returns_of(source, reward=("outcome",))
    rows, _ = advantage_of(returned, preset="dr-grpo")
    got = [row["advantage"] for row in rows]
    assert got[:3] == pytest.approx([-1 / 6, -1 / 6, 1 / 3])
    assert got[3] is None


@pytest.mark.parametrize("missing", ["fill", "zero", "drop-dialogue"])
@pytest.mark.parametrize("preset", ["grpo", "dr-grpo", "rloo"])
def test_a_missing_outcome_takes_the_whole_dialogue_out_of_dialogue_pools(
    tmp_path: Path, preset: str, missing: str
) -> None:
    # Five turns of which one is missing: too few to drop the dialogue, yet its sum is not known.
    scored = outcomes(a=(5, 1.0), b=(5, 0.0))
    unscored = outcomes(a=(5, 1.0), b=(5, 0.0), c=(5, None))
    without, _ = returns_of(write(tmp_path / "without.parquet", scored), reward=("outcome",))
    with_it, _ = returns_of(write(tmp_path / "with.parquet", unscored), reward=("outcome",), missing=missing)
    want = by_dialogue(advantage_of(without, preset=preset)[0], "advantage")["g"]
    assert by_dialogue(advantage_of(with_it, preset=preset)[0], "advantage")["g"] == [*want, [None] * 5]


def test_the_baseline_is_over_dialogues_and_not_over_rows(tmp_path: Path) -> None:
    # Field case 11: 2 turns with outcome 1, 8 turns with outcome 0; a mean over rows would be .2.
    source = write(tmp_path / "turns.parquet", outcomes(a=(2, 1.0), b=(8, 0.0)))
    returned, _ = returns_of(source, reward=("outcome",))
    rows, _ = advantage_of(returned, preset="dr-grpo")
    assert by_dialogue(rows, "advantage")["g"] == [[0.5] * 2, [-0.5] * 8]


def test_a_group_smaller_than_the_others_is_reported(tmp_path: Path) -> None:
    # Field case 11
    source = write(tmp_path / "turns.parquet", rows_of({"g": [(1.0,), (2.0,), (3.0,)], "h": [(1.0,), (2.0,)]}))
    _, summary = advantage_of(returns_of(source)[0], preset="grpo")
    assert (summary.counts["smallest_group"], summary.counts["largest_group"]) == (2, 3)
    assert any("smallest has 2 dialogues, 3 were expected" in warning for warning in summary.warnings)


LENGTHS = {"g": [(1.0,) * length for length in (1, 2, 3, 3)]}
CENTRED = {"name": "turn", "centre": "turn"}


def test_credit_for_length_depends_on_the_view(tmp_path: Path) -> None:
    # Field case 13: four dialogues of 1, 2, 3, 3 turns, each reward 1, gamma 1 (docs/credit.md 4).
    def seen(**options: object) -> list[list[float]]:
        found = credit(tmp_path, LENGTHS, returns={"gamma": 1.0}, **options)["g"]
        return [[round(value, 3) for value in dialogue] for dialogue in found]

    assert flat(seen(terms=(CENTRED,))) == [0.0] * 9
    assert seen(preset="dr-grpo") == [[-1.25], [-0.25] * 2, [0.75] * 3, [0.75] * 3]
    to_go = seen(terms=({**CENTRED, "accumulate": "return"},))
    assert to_go == [[-1.25], [-0.25, -0.667], [0.75, 0.333, 0.0], [0.75, 0.333, 0.0]]


def test_the_summary_shows_where_length_decides(tmp_path: Path) -> None:
    # Field case 13
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of(LENGTHS)), gamma=1.0)
    _, summary = advantage_of(returned, preset="turn-only", gamma=1.0)
    assert summary.figures["members_by_turn"] == [4, 3, 2]
    assert summary.figures["length_return_correlation"] == pytest.approx(1.0)
    pools = summary.figures["pools"]["turn: turn"]
    assert pools["degenerate_share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("rewards", [(0.0, 1.0), (0.49, 0.51)])
def test_a_group_of_two_becomes_plus_and_minus_one_and_is_said_so(tmp_path: Path, rewards: tuple[float, float]) -> None:
    # Field case 14
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of({"g": [(r,) for r in rewards]})))
    rows, summary = advantage_of(returned, preset="grpo")
    assert [row["advantage"] for row in rows] == pytest.approx([-1.0, 1.0], abs=1e-5)
    assert any("1 of 1 pools" in w and "two members" in w and "--scale none" in w for w in summary.warnings)
    rows, summary = advantage_of(returned, preset="grpo", scale=("none",))
    half = (rewards[1] - rewards[0]) / 2
    assert [row["advantage"] for row in rows] == pytest.approx([-half, half])
    assert not any("two members" in warning for warning in summary.warnings)
