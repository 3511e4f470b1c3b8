"""By hand: whose spread divides, who is in a pool when something is missing, and what a signal is made of."""

from pathlib import Path
from typing import Any

import pytest

from credit_files import advantage_of, by_dialogue, credit, flat, returns_of, write

PAIR = {"g": [(0.0,), (1.0,)]}


def outcome_rows(*outcomes: float | None) -> list[dict[str, Any]]:
    """Dialogues of two turns that cost nothing (kl 0), the outcome on the second."""
    return [
        {"group_id": "g", "sample": sample, "turn": turn, "kl": 0.0, "outcome": outcome if turn else None}
        for sample, outcome in enumerate(outcomes)
        for turn in range(2)
    ]


@pytest.mark.parametrize(("options", "value"), [({}, 1.0), ({"std": "sample"}, 0.5**0.5), ({"min_std": 4.0}, 0.25)])
def test_whitening_takes_the_kind_of_std_and_the_least_spread(
    options: dict[str, Any], value: float, tmp_path: Path
) -> None:
    terms = ({"name": "x", "centre": "group", "leave_one_out": True, "whiten": "batch"},)  # centred: -1 and 1
    assert flat(credit(tmp_path, PAIR, terms=terms, **options)) == pytest.approx([-value, value])


def test_the_spread_of_the_input_is_that_of_what_was_centred_without_the_dialogue_itself(tmp_path: Path) -> None:
    groups = {"g": [(2.0,), (0.0,)], "h": [(0.0,), (0.0,), (3.0,)]}
    centred = [2.0, -2.0, -1.5, -1.5, 3.0]
    spread = (21.5 / 5) ** 0.5
    got = credit(tmp_path, groups, preset="reinforce++-baseline", leave_one_out=True)
    assert flat(got) == pytest.approx([value / spread for value in centred])


def test_another_scope_than_the_centre_is_scaled_by_the_std_that_was_asked_for(tmp_path: Path) -> None:
    got = credit(tmp_path, PAIR, preset="reinforce++-baseline", std="sample")  # centred: -.5 and .5, spread .7071
    assert flat(got) == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_z_without_the_dialogue_itself_is_wider_and_so_is_its_spread(tmp_path: Path) -> None:
    groups = {"g": [(0.0,), (0.0,), (3.0,)]}  # -1.5, -1.5, 3 by a spread of 1.5 x 1.4142
    got = credit(tmp_path, groups, preset="grpo", leave_one_out=True)
    assert flat(got) == pytest.approx([-(0.5**0.5), -(0.5**0.5), 2**0.5])
    close = credit(tmp_path, {"g": [(0.49,), (0.51,)]}, preset="grpo", leave_one_out=True, min_std=0.1)
    assert flat(close) == pytest.approx([-0.2, 0.2])  # -.02 and .02, whose spread .02 is below .1


def test_what_a_term_says_of_its_std_goes_before_what_the_stage_says(tmp_path: Path) -> None:
    scopes = {"accumulate": "sum", "centre": "dialogue-group", "scale": "dialogue-group"}
    exact = {"name": "own", **scopes, "std": "population", "min_std": 0.0}
    got = credit(tmp_path, PAIR, terms=(exact,), std="sample", min_std=5.0)
    assert flat(got) == pytest.approx([-1.0, 1.0])
    assert flat(credit(tmp_path, PAIR, terms=({"name": "stage", **scopes},), min_std=5.0)) == pytest.approx([-0.1, 0.1])


def test_a_return_from_a_turn_whose_reward_is_missing_is_compared_with_nobody(tmp_path: Path) -> None:
    # Filled by the other dialogue's 5: returns 6, 5 and 8, 5; members 6, 8 and the second 5, mean 19 / 3.
    terms = ({"name": "x", "signal": "given", "accumulate": "return", "gamma": 1.0, "centre": "group"},)
    got = credit(tmp_path, {"g": [(1.0, None), (3.0, 5.0)]}, returns={"max_missing": 0.5, "gamma": 1.0}, terms=terms)
    assert got["g"][0][1] is None
    assert [got["g"][0][0], *got["g"][1]] == pytest.approx([-1 / 3, 5 / 3, -4 / 3])


@pytest.mark.parametrize("signal", ["outcome", "reward"])
def test_a_dialogue_whose_outcome_is_missing_is_in_no_pool_and_gets_nothing(signal: str, tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", outcome_rows(1.0, None, 0.0))
    returned, _ = returns_of(source, reward=("kl", "outcome"), max_missing=1.0)
    scopes = {"accumulate": "sum", "centre": "dialogue-group", "scale": "dialogue-group"}
    rows, _ = advantage_of(returned, terms=({"name": "x", "signal": signal, **scopes},))
    one, lost, other = by_dialogue(rows, "advantage")["g"]
    assert lost == [None, None]
    assert [*one, *other] == pytest.approx([1.0, 1.0, -1.0, -1.0])


def test_channels_that_are_one_signal_keep_their_weights(tmp_path: Path) -> None:
    rows = outcome_rows(1.0, 0.0)
    rows[-1]["end_reason"] = "format_failure"
    returned, _ = returns_of(
        write(tmp_path / "turns.parquet", rows), reward=("outcome=2", "format=3"), format_penalty=-1.0
    )
    term = {"name": "x", "signal": "outcome+format", "accumulate": "sum", "centre": "dialogue-group"}
    got, _ = advantage_of(returned, terms=(term,))  # 2 and -3, mean -.5
    assert [row["advantage"] for row in got] == pytest.approx([2.5, 2.5, -2.5, -2.5])


def test_the_root_of_the_number_of_rewards_counts_both_signals_of_a_pool(tmp_path: Path) -> None:
    rows = [
        {"group_id": "q", "sample": 0, "turn": 0, "belief_before": -1.0, "belief_after": -0.9},
        {"group_id": "q", "sample": 0, "turn": 1, "outcome": 1.0, "end_reason": "answer"},
    ]
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows), reward=("information-gain", "outcome"))
    term = {
        "name": "x", "signal": "information-gain", "pooled_with": "outcome", "accumulate": "return", "gamma": 1.0,
        "order": "normalise-then-return", "rescale": "root-count",
    }  # fmt: skip
    got, _ = advantage_of(returned, terms=(term,))
    assert [row["advantage"] for row in got] == pytest.approx([1.1 / 2**0.5, 1.0])
