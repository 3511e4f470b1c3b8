"""Overrides, own terms and refusals of ``dialrl advantage``."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.advantage.test_golden_tables import igpo_rows as gains_and_outcomes

from credit_files import GOLDEN, advantage_of, by_dialogue, credit, flat, returns_of, rows_of, write
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.presets import describe_presets, known_presets
from dialrl.advantage.terms import Term
from dialrl.errors import InputError, UsageError


def golden(folder: Path, **options: Any) -> Path:
    return returns_of(write(folder / "turns.parquet", rows_of(GOLDEN)), **options)[0]


def test_another_gamma_is_refused_with_both_numbers(tmp_path: Path) -> None:
    returned = golden(tmp_path, gamma=0.9)
    with pytest.raises(UsageError, match=r"published with gamma 0\.85.*made with gamma 0\.9.*--gamma 0\.9.*--gamma"):
        advantage_of(returned, preset="mica")


def test_a_given_gamma_recomputes_the_returns(tmp_path: Path) -> None:
    want = credit(tmp_path, GOLDEN, preset="mica")
    rows, _ = advantage_of(golden(tmp_path, gamma=0.5), preset="mica", gamma=0.85)
    assert flat(by_dialogue(rows, "advantage")) == pytest.approx(flat(want), abs=1e-12)
    own, _ = advantage_of(golden(tmp_path, gamma=0.5), preset="group-only", gamma=0.5)
    assert flat(by_dialogue(own, "advantage")) != pytest.approx(flat(credit(tmp_path, GOLDEN, preset="group-only")))


@pytest.mark.parametrize("preset", ["grpo", "dr-grpo", "rloo", "reinforce++", "reinforce++-baseline"])
def test_sums_take_a_file_of_any_gamma(tmp_path: Path, preset: str) -> None:
    want = credit(tmp_path, GOLDEN, preset=preset)
    rows, _ = advantage_of(golden(tmp_path, gamma=0.3), preset=preset)
    assert by_dialogue(rows, "advantage") == want
    _, summary = advantage_of(golden(tmp_path), preset=preset, gamma=0.5)
    assert any("gamma 0.5 has no effect" in warning for warning in summary.warnings)


def test_the_default_is_mica(tmp_path: Path) -> None:
    assert credit(tmp_path, GOLDEN) == credit(tmp_path, GOLDEN, preset="mica")


def test_terms_are_written_before_their_weights(tmp_path: Path) -> None:
    rows, _ = advantage_of(golden(tmp_path), preset="mapo")
    for row in rows:
        assert row["advantage"] == pytest.approx(0.4 * row["advantage_turn"] + 0.6 * row["advantage_batch"])


def test_turn_weight_mixes_the_two_terms(tmp_path: Path) -> None:
    assert credit(tmp_path, GOLDEN, preset="mica", turn_weight=1.0) == credit(tmp_path, GOLDEN, preset="turn-only")
    with pytest.raises(UsageError, match="needs two terms"):
        credit(tmp_path, GOLDEN, preset="grpo", turn_weight=0.5)


def test_centre_by_turn_scaled_by_batch_keeps_small_differences_small(tmp_path: Path) -> None:
    groups = {"g": [(0.49,), (0.51,)], "h": [(-1.0,), (1.0,)]}
    got = credit(tmp_path, groups, preset="turn-only", centre=("turn",), scale=("batch",))
    spread = ((0.01**2 + 1.0) / 2) ** 0.5  # of the centred values -.01, .01, -1, 1
    assert flat(got) == pytest.approx([-0.01 / spread, 0.01 / spread, -1.0 / spread, 1.0 / spread])


def test_an_override_may_name_its_term(tmp_path: Path) -> None:
    rows, summary = advantage_of(golden(tmp_path), preset="mapo", scale=("batch=none",))
    assert summary.figures["terms"]["turn"] == "0.4 x return of reward (gamma 0.85), centre turn, scale turn"
    assert summary.figures["terms"]["batch"] == "0.6 x reward, centre batch, scale none"
    mean = sum(flat(GOLDEN)) / 11
    assert [row["advantage_batch"] for row in rows] == pytest.approx([r - mean for r in flat(GOLDEN)])


@pytest.mark.parametrize("options", [{"centre": ("dialogue-group",)}, {"scale": ("nowhere=turn",)}])
def test_an_override_that_fits_no_term_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="fits none of the terms turn, group"):
        credit(tmp_path, GOLDEN, preset="mica", **options)


def test_an_unknown_scope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'turn', 'state', 'group'"):
        credit(tmp_path, GOLDEN, preset="mica", centre=("turn=galaxy",))


def test_leave_one_out_turns_dr_grpo_into_rloo(tmp_path: Path) -> None:
    assert credit(tmp_path, GOLDEN, preset="dr-grpo", leave_one_out=True) == credit(tmp_path, GOLDEN, preset="rloo")


def test_sample_std_and_least_spread_are_options(tmp_path: Path) -> None:
    sample = credit(tmp_path, {"g": [(0.0,), (1.0,)]}, preset="grpo", std="sample")
    assert flat(sample) == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert flat(credit(tmp_path, {"g": [(0.0,), (1.0,)]}, preset="grpo", min_std=5.0)) == pytest.approx([-0.1, 0.1])


def test_own_terms_replace_a_preset(tmp_path: Path) -> None:
    terms = (
        {"name": "ahead", "accumulate": "return", "centre": "turn", "scale": "turn", "weight": 0.5},
        {"name": "earned", "centre": "group", "scale": "group", "weight": 0.5},
    )
    assert credit(tmp_path, GOLDEN, terms=terms) == credit(tmp_path, GOLDEN, preset="mica")


def test_returns_divided_by_the_root_of_their_number(tmp_path: Path) -> None:
    terms = ({"name": "ahead", "accumulate": "return", "rescale": "root-count", "gamma": 1.0},)
    got = credit(tmp_path, {"g": [(1.0, 2.0, 3.0)]}, terms=terms)
    assert flat(got) == pytest.approx([6.0 / 3**0.5, 5.0 / 2**0.5, 3.0])


def igpo_rows(length: int, sample: int) -> list[dict[str, Any]]:
    """A total gain of .6 in ``length`` turns, then an answer."""
    rows: list[dict[str, Any]] = [
        {"group_id": "q", "sample": sample, "turn": turn, "belief_before": 0.0, "belief_after": 0.6 / length}
        for turn in range(length)
    ]
    return [*rows, {"group_id": "q", "sample": sample, "turn": length, "outcome": 1.0, "end_reason": "answer"}]


def gains(folder: Path, **options: Any) -> list[float]:
    """igpo's gain term on the first turn of a dialogue of 2 and one of 6 gains."""
    source = write(folder / "turns.parquet", [*igpo_rows(2, 0), *igpo_rows(6, 1)])
    returned, _ = returns_of(source, reward=("information-gain", "outcome"))
    rows, _ = advantage_of(returned, preset="igpo", **options)
    return [row["advantage_information-gain"] for row in rows if row["turn"] == 0]


def test_igpo_ranks_the_same_gain_in_more_turns_lower_unless_told_otherwise(tmp_path: Path) -> None:
    # docs/credit.md 4: +3.46 against -3.46 for the same total gain.
    assert gains(tmp_path) == pytest.approx([3.4641, -3.4641], abs=1e-4)
    uncentred = gains(tmp_path, centre=("information-gain=none",))
    assert uncentred[0] == pytest.approx(uncentred[1])
    rooted = gains(tmp_path, rescale="root-count")
    assert rooted == pytest.approx([3.4641 / 2**0.5, -3.4641 / 6**0.5], abs=1e-4)
    by_turn = gains(tmp_path, centre=("information-gain=turn",), scale=("information-gain=none",))
    assert by_turn == pytest.approx([0.1 + 0.1, -0.1 - 0.1])


def test_igpo_needs_its_channels_and_does_without_format(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", [*igpo_rows(2, 0), *igpo_rows(3, 1)])
    returned, _ = returns_of(source, reward=("information-gain", "outcome"))
    _, summary = advantage_of(returned, preset="igpo")
    assert any("no channel 'format'" in warning for warning in summary.warnings)
    returned, _ = returns_of(source, reward=("information-gain",))
    with pytest.raises(InputError, match="needs the channel 'outcome'; the file was made with: information-gain"):
        advantage_of(returned, preset="igpo")


def test_the_format_channel_is_centred_and_not_scaled(tmp_path: Path) -> None:
    rows = [*igpo_rows(2, 0), *igpo_rows(2, 1)]
    rows[-1].update(outcome=0.0, end_reason="format_failure")
    returned, _ = returns_of(
        write(tmp_path / "turns.parquet", rows), reward=("information-gain", "outcome", "format"), format_penalty=-3.0
    )
    got, _ = advantage_of(returned, preset="igpo", format_channel=True)
    assert [row["advantage_format"] for row in got] == [1.5] * 3 + [-1.5] * 3
    assert [row["advantage_outcome"] for row in got] == pytest.approx([1.0] * 3 + [-1.0] * 3)
    pooled, _ = advantage_of(returned, preset="igpo")
    assert [row["advantage_outcome"] for row in pooled] == pytest.approx([1.0] * 3 + [-1.0] * 3)


def test_a_missing_gain_is_filled_before_it_is_normalised(tmp_path: Path) -> None:
    rows = [*igpo_rows(4, 0), *igpo_rows(4, 1)]
    gains_wanted = [(0.1, None, 0.3, 0.2), (0.2, 0.5, 0.0, 0.1)]
    for sample, wanted in enumerate(gains_wanted):
        for turn, gain in enumerate(wanted):
            rows[5 * sample + turn]["belief_after"] = gain
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows), reward=("information-gain", "outcome", "format"))
    got, _ = advantage_of(returned, preset="igpo")
    pool = [0.1, 0.3, 0.2, 0.2, 0.5, 0.0, 0.1]
    mean = sum(pool) / 7
    std = (sum((x - mean) ** 2 for x in pool) / 7) ** 0.5
    first = sum((x - mean) / std for x in (0.1, 0.5, 0.3, 0.2))  # filled by the other dialogue's .5
    assert got[0]["advantage_information-gain"] == pytest.approx(first, abs=1e-6)
    assert got[1]["advantage"] is None
    assert got[1]["advantage_information-gain"] is None
    assert got[4]["advantage"] is not None


def test_variants_belong_to_igpo(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--joint is a variant of igpo"):
        credit(tmp_path, GOLDEN, preset="mica", joint=True)


def test_an_unknown_preset_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown preset 'micca'.*Did you mean 'mica'"):
        credit(tmp_path, GOLDEN, preset="micca")


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "mica", "terms": ({"name": "a", "centre": "turn"},)},
        {"terms": ({"name": "a"}, {"name": "a"})},
        {"joint": True, "format_channel": True},
        {"gamma": 1.5},
    ],
)
def test_contradicting_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AdvantageConfig(**options)


@pytest.mark.parametrize(
    ("term", "fault"),
    [
        ({"accumulate": "sum", "centre": "turn"}, "a sum of the dialogue takes dialogue-group"),
        ({"accumulate": "return", "centre": "dialogue-group"}, "need order normalise-then-return"),
        ({"centre": "dialogue-group"}, "need accumulate sum"),
        ({"pooled_with": "outcome", "centre": "group"}, "pooled_with needs accumulate return"),
        ({"leave_one_out": True}, "needs a centre scope"),
        ({"rescale": "root-count"}, "needs accumulate return"),
    ],
)
def test_terms_that_cannot_be_computed_are_refused(term: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=f"term 'a': .*{fault}"):
        Term(name="a", **term)


def test_every_preset_says_who_is_compared_and_what_to_know() -> None:
    entries = describe_presets()
    assert [entry["name"] for entry in entries] == list(known_presets())
    for entry in entries:
        assert {"formula", "compared", "bias", "group of one", "source"} <= set(entry)
        assert entry["compared"].split()[0] in entry["description"]


@pytest.mark.parametrize("accumulate", ["none", "return"])
def test_a_turn_on_which_a_channel_does_not_apply_gets_nothing_from_it(tmp_path: Path, accumulate: str) -> None:
    """The turn that answers has no gain: it is no member of the pool, and is not taken for a gain of 0 either."""
    source = write(tmp_path / "turns.parquet", gains_and_outcomes(end_reason="answer"))
    returned, _ = returns_of(source, reward=("information-gain", "outcome"))
    term = Term(name="gain", signal="information-gain", accumulate=accumulate, centre="group", scale="group", gamma=1.0)
    rows, _ = advantage_of(returned, terms=(term,))
    assert [row["advantage_gain"] for row in rows if row["end_reason"]] == [0.0, 0.0, 0.0]
    assert all(row["advantage_gain"] != 0.0 for row in rows if not row["end_reason"])


def test_all_channels_of_turns_or_of_the_dialogue_are_one_signal(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", gains_and_outcomes(end_reason="answer"))
    returned, _ = returns_of(source, reward=("information-gain", "outcome=2", "format"))
    _, summary = advantage_of(returned, preset="mt-grpo")
    assert summary.figures["terms"] == {
        "turn": "1 x information-gain, centre turn, scale turn",
        "outcome": "1 x sum of format+outcome, centre dialogue-group, scale dialogue-group",
    }
    assert not any("no channel of the dialogue" in line for line in summary.warnings)


def test_a_preset_of_turn_rewards_needs_some(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", gains_and_outcomes(end_reason="answer"))
    returned, _ = returns_of(source, reward=("outcome",))
    with pytest.raises(InputError, match=r"'turn' needs a reward of single turns; the file was made with: outcome"):
        advantage_of(returned, preset="mt-grpo")


def test_without_an_outcome_the_sum_of_rewards_stands_for_it_and_the_summary_says_so(tmp_path: Path) -> None:
    _, summary = advantage_of(golden(tmp_path), preset="mt-grpo")
    assert any("'outcome' takes the sum of its rewards" in line for line in summary.warnings)
