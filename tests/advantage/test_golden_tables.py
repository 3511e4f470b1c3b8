"""The tables of docs/credit.md 2, through real files: every preset on the two golden groups, igpo in its four modes."""

from pathlib import Path

import pytest

from credit_files import GOLDEN, advantage_of, by_dialogue, credit, flat, returns_of, rows_of, write

TABLE = {
    "mica": [[(1.2448, 0.2103, 0.3310), (-1.2035, -0.5828)], [(-0.2042, -1.3452, 1.0494), (0.5423, 0.9226, -0.9648)]],
    "mapo": [[(1.1911, 0.3209, 0.4430), (-0.8272, -0.3051)], [(-0.1310, -1.6974, 1.0171), (0.3209, 0.8430, -1.1753)]],
    "turn-only": [[(1, 1, 0), (-1, -1)], [(-1, -1, 1), (1, 1, -1)]],
    "group-only": [
        [(1.8535, 0.2033, -0.5586), (-0.5386, -0.9597)],
        [(0.9409, -0.6386, 0.2214), (1.1257, 0.1829, -1.8323)],
    ],
    "batch-only": [
        [(2.3148, 0.5325, -0.2905), (-0.2688, -0.7236)],
        [(0.5330, -0.7994, -0.0739), (0.6889, -0.1064, -1.8065)],
    ],
    "grpo": [[(1, 1, 1), (-1, -1)], [(0, 0, 0), (0, 0, 0)]],
    "dr-grpo": [[(0.7, 0.7, 0.7), (-0.7, -0.7)], [(0, 0, 0), (0, 0, 0)]],
    "rloo": [[(1.4, 1.4, 1.4), (-1.4, -1.4)], [(0, 0, 0), (0, 0, 0)]],
    "reinforce++": [[(1.5842,) * 3, (-1.1882,) * 2], [(-0.1980,) * 3, (-0.1980,) * 3]],
    "reinforce++-baseline": [[(1.4142,) * 3, (-1.4142,) * 2], [(0, 0, 0), (0, 0, 0)]],
    "mt-grpo": [[(2, 0, 1), (-2, 0)], [(1, -1, 1), (-1, 1, -1)]],
    "gigpo": [
        [(2.4142, 2.0, 0.2841), (-1.6982, -2.0)],
        [(0.4568, 0.1500, -1.3875), (0.9307, 1.1429, -1.2928)],
    ],
}


def test_returns_are_those_of_the_table(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", rows_of(GOLDEN))
    returned, _ = returns_of(source)
    rows, _ = advantage_of(returned, preset="grpo")
    want = [2.0030, 1.1800, 0.8000, 0.8100, 0.6000, 1.1803, 0.5650, 0.9000, 1.2523, 0.8850, 0.1000]
    assert [row["return"] for row in rows] == pytest.approx(want, abs=5.1e-5)


@pytest.mark.parametrize("preset", TABLE)
def test_a_preset_gives_its_golden_advantages(tmp_path: Path, preset: str) -> None:
    got = credit(tmp_path, GOLDEN, preset=preset, gamma=0.85)
    assert flat(got) == pytest.approx(flat(TABLE[preset]), abs=5.1e-5)


@pytest.mark.parametrize("preset", ["grpo", "dr-grpo", "rloo"])
def test_equal_sums_give_exact_zeros_and_are_counted(tmp_path: Path, preset: str) -> None:
    source = write(tmp_path / "turns.parquet", rows_of(GOLDEN))
    returned, _ = returns_of(source)
    rows, summary = advantage_of(returned, preset=preset)
    assert flat(by_dialogue(rows, "advantage")["g1"]) == [0.0] * 6
    pools = summary.figures["pools"]["dialogue: dialogue-group"]
    assert (pools["pools"], pools["degenerate"]) == (2, 1)


IGPO = {
    "separate, gamma 1": (
        {},
        [(0.9066, -0.1272, 1.2247), (0.0795, 0.0), (-0.9862, -0.3022, 0.2862, -1.2247)],
    ),
    "separate, gamma .9": (
        {"gamma": 0.9},
        [(0.8091, -0.2497, 1.2247), (0.0795, 0.0), (-0.8825, -0.2206, 0.4087, -1.2247)],
    ),
    "joint, gamma 1": (
        {"joint": True},
        [(2.0095, 1.7208, 1.9517), (-0.0462, -0.1270), (-1.9633, -1.8778, -1.8132, -2.2058)],
    ),
    "joint, gamma .9": (
        {"joint": True, "gamma": 0.9},
        [(1.6618, 1.5256, 1.9517), (-0.0335, -0.1270), (-1.4337, -1.4980, -1.5926, -2.2058)],
    ),
}


def igpo_rows(**last: str) -> list[dict[str, object]]:
    """Gains A (.20, -.05), B (.10), C (.02, .03, .25); outcomes 1, 0, -1 on an answer turn without beliefs."""
    rows: list[dict[str, object]] = []
    for sample, (gains, outcome) in enumerate([((0.20, -0.05), 1.0), ((0.10,), 0.0), ((0.02, 0.03, 0.25), -1.0)]):
        for turn, gain in enumerate(gains):
            row = {"group_id": "q", "sample": sample, "turn": turn, "belief_before": -2.0, "belief_after": -2.0 + gain}
            rows.append(row)
        rows.append({"group_id": "q", "sample": sample, "turn": len(gains), "outcome": outcome, **last})
    return rows


@pytest.mark.parametrize("ending", [{"end_reason": "answer"}, {}], ids=["answer", "ending unknown"])
@pytest.mark.parametrize("mode", IGPO)
def test_igpo_gives_its_golden_advantages(tmp_path: Path, mode: str, ending: dict[str, str]) -> None:
    options, want = IGPO[mode]
    source = write(tmp_path / "turns.parquet", igpo_rows(**ending))
    returned, _ = returns_of(source, reward=("information-gain", "outcome", "format"), gamma=1.0)
    rows, _ = advantage_of(returned, preset="igpo", **options)
    assert [row["advantage"] for row in rows] == pytest.approx(flat(want), abs=5.1e-5)


BY_TURN = {
    "mt-grpo": [(2.4922, 0.2247, 1.2247), (-0.0905, 0.0), (-2.4017, -0.2247, -1.2247, -1.2247)],
    "a2tgpo": [(1.2815, 0.9247, 1.2247), (-0.0272, 0.0), (-1.2554, -1.0126, -1.2247, -1.2247)],
}


@pytest.mark.parametrize("preset", BY_TURN)
def test_gains_and_outcomes_give_the_golden_advantages(tmp_path: Path, preset: str) -> None:
    """The turn that answers has no gain: it gets the outcome alone."""
    source = write(tmp_path / "turns.parquet", igpo_rows(end_reason="answer"))
    returned, _ = returns_of(source, reward=("information-gain", "outcome", "format"))
    rows, _ = advantage_of(returned, preset=preset)
    assert [row["advantage"] for row in rows] == pytest.approx(flat(BY_TURN[preset]), abs=5.1e-5)


MISSING = {"g": [(1.0, None, 0.8), (0.3, 0.6, 0.9)]}
MISSING_TABLE = {
    "mica": [(1.0641, None, -0.3388), (-1.3461, -0.2417, 0.8626)],
    "mapo": [(1.0769, None, -0.2066), (-1.4153, -0.2901, 0.8351)],
    "grpo": [(1, None, 1), (-1, -1, -1)],
}


@pytest.mark.parametrize("preset", MISSING_TABLE)
def test_a_missing_reward_is_filled_in_returns_and_sums_and_gets_no_advantage(tmp_path: Path, preset: str) -> None:
    got = flat(credit(tmp_path, MISSING, returns={"max_missing": 0.5}, preset=preset))
    want = flat(MISSING_TABLE[preset])
    assert [value is None for value in got] == [value is None for value in want]
    assert [v for v in got if v is not None] == pytest.approx([v for v in want if v is not None], abs=5.1e-5)
