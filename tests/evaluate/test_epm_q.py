"""The nine indices of small dialogues, worked out by hand, and the cases where a formula has nothing to divide by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.evaluate.epm_q import INDICES, JudgedTurns, detour, dimension_scores, epm_q, index_table


def judged(*dialogues):
    """Dialogues as (deficit, positions, sums of levels, sums of harm)."""
    lengths = [len(positions) for _, positions, _, _ in dialogues]
    return JudgedTurns(
        deficit_DA=np.array([deficit for deficit, *_ in dialogues], dtype=float),
        position_KA=np.concatenate([np.array(positions, dtype=float) for _, positions, _, _ in dialogues]),
        level_K=np.concatenate([np.array(levels, dtype=float) for *_, levels, _ in dialogues]),
        harm_K=np.concatenate([np.array(harm, dtype=float) for *_, harm in dialogues]),
        dialogue_start=np.cumsum([0, *lengths]),
    )


def named(*dialogue):
    return dict(zip(INDICES, index_table(judged(dialogue))[0].tolist(), strict=True))


def test_nine_indices_of_a_dialogue_by_hand():
    # deficit -5 on one axis, steps +3 -1 +2: d0 = 4, dT = 0, E = 4, S = 2, path 6, way 4, N = 4 points
    found = named([-5], [[-2], [-3], [-1]], [2, -1, 1], [0, 1, 0])
    assert found == pytest.approx(
        {
            "RDI": (100 + 100) / 2,
            "Etot": 100 * 4 / (1.2 * 4),
            "Snet": 100 * 2 / (1.5 * 4),
            "Rho": 100 * (4 / 3) / 2.5,
            "Sproj": 100 * (4 / 4) / 2.5,
            "Tau": 100 * (3 - 6 / 4) / 2,
            "Rpos": 100 * 2 / 4,
            "Align": 100 * ((1 - 1 + 1) / 4 + 1) / 2,
            "Pen": 100 * (3 - 1 / 4) / 3,
        }
    )


def test_score_weighs_the_means_of_three_indices():
    table = index_table(judged(([-5], [[-2], [-3], [-1]], [2, -1, 1], [0, 1, 0])))
    assert dimension_scores(table)[0] == pytest.approx([72.2222, 56.1111, 68.0556], abs=5e-5)
    assert epm_q(table)[0] == pytest.approx(67.3333, abs=5e-5)


def test_indices_are_averaged_over_dialogues_before_they_are_combined():
    good = ([-5], [[-2], [-3], [-1]], [2, -1, 1], [0, 1, 0])
    bad = (
        [
            -5,
        ],
        [[-9]],
        [-4],
        [4],
    )
    table = index_table(judged(good, bad))
    assert epm_q(table.mean(axis=0)) == pytest.approx(epm_q(table).mean())
    assert table[0] == pytest.approx(index_table(judged(good))[0])
    assert table[1] == pytest.approx(index_table(judged(bad))[0])


def test_going_straight_away_from_the_goal_is_nought_everywhere_but_in_tau():
    found = named([-5], [[-7], [-9]], [-2, -2], [2, 2])
    assert found["RDI"] == 0
    assert (found["Etot"], found["Snet"], found["Rho"], found["Sproj"], found["Rpos"]) == (0, 0, 0, 0, 0)
    assert found["Align"] == pytest.approx(100 * (1 - 2 / 3) / 2)
    assert found["Tau"] == 100  # the known flaw
    assert found["Pen"] == pytest.approx(100 * (3 - 4 / 3) / 3)


def test_a_dialogue_in_which_nothing_moves():
    found = named([-5], [[-5], [-5]], [0, 0], [0, 0])
    assert found == pytest.approx(
        {"RDI": 50, "Etot": 0, "Snet": 0, "Rho": 0, "Sproj": 0, "Tau": 100, "Rpos": 0, "Align": 50, "Pen": 100}
    )


def test_a_path_that_returns_to_its_start_counts_as_straight():
    assert named([-5], [[-4], [-5]], [1, -1], [0, 1])["Tau"] == 100
    assert named([-0.3], [[-0.2], [-0.1], [-0.3]], [0, 0, 0], [0, 0, 0])["Tau"] == 100  # apart by rounding only


def test_detour_never_falls_below_a_straight_line():
    path, net = np.array([3.0, 0.0, 2.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0 + 1e-9])
    assert detour(path, net).tolist() == [3, 1, 1, 1]


def test_a_detour_of_more_than_three_times_the_way_scores_nought():
    assert named([-5], [[-1], [-8], [-4]], [0] * 3, [0] * 3)["Tau"] == 0


def test_without_a_need_energy_and_alignment_are_nought_and_distance_counts_in_units():
    found = named([0, 0], [[1, 1], [-3, 0]], [3, -1], [0, 2])
    assert found["RDI"] == 0  # (100 (0 - 2) / 1 + 100) / 2, clipped
    assert (found["Etot"], found["Rho"], found["Sproj"], found["Rpos"]) == (0, 0, 0, 0)
    assert found["Align"] == 50
    assert found["Snet"] == pytest.approx(100 * 2 / 1.5)


def test_a_need_inside_the_zone_has_distance_nought_and_scale_one():
    found = named([-1, -0.5], [[0, 0]], [1], [0])
    assert found["RDI"] == 50
    assert found["Etot"] == pytest.approx(100 * np.sqrt(1.25) / 1.2)


def test_indices_may_exceed_one_hundred_where_the_formula_lets_them():
    found = named([-5], [[20]], [6], [0])
    assert found["Etot"] == pytest.approx(100 * 25 / 4.8)
    assert found["RDI"] == 100
    assert found["Rpos"] == 50  # one of two points: the start has no step


def test_the_zone_is_a_parameter():
    table = index_table(judged(([-5], [[-3]], [0], [0])), epsilon=3.0)
    assert table[0, 0] == 100  # d0 = 2, dT = 0


paths = st.lists(st.lists(st.integers(-6, 6), min_size=3, max_size=3), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.tuples(*[st.integers(-20, 0)] * 3), paths), min_size=1, max_size=4))
def test_dialogues_do_not_touch_each_other_and_all_is_finite(drawn):
    dialogues = [
        (deficit, np.cumsum([deficit, *steps], axis=0)[1:], [sum(s) for s in steps], [1] * len(steps))
        for deficit, steps in drawn
    ]
    together = index_table(judged(*dialogues))
    assert np.isfinite(together).all()
    assert (together >= 0).all()
    for row, dialogue in zip(together, dialogues, strict=True):
        assert row == pytest.approx(index_table(judged(dialogue))[0], abs=1e-9)
