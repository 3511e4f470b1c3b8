"""Agreement measures: by hand, against reference libraries on random data with missing values, and where undefined.

``agreement_reference.json`` holds seeded random ratings and what irrCAC 0.4.4 (AC2, quadratic weights; ordinal levels)
and scikit-learn (``cohen_kappa_score(weights="quadratic")`` on the units that both rated) say of them. irrCAC needs an
older numpy, so its values are stored. Alpha is the library krippendorff itself; its textbook table is the check.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialrl.evaluate.agreement_measures import (
    compare_increments,
    gwet_ac2,
    level_pairs,
    ordinal_alpha,
    quadratic_kappa,
)

NAN = float("nan")
CASES = json.loads((Path(__file__).parent / "agreement_reference.json").read_text(encoding="utf-8"))["cases"]
# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section D: four observers, twelve units.
TEXTBOOK = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
)
ratings = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, NAN])] * 2), min_size=2, max_size=30)


def kappa(first, second, levels=(0, 1, 2)):
    table, _ = level_pairs(np.asarray(first, dtype=float), np.asarray(second, dtype=float), levels)
    return float(quadratic_kappa(table.sum(axis=0)[None], levels)[0])


# by hand ------------------------------------------------------------------------------------------------------------


def test_kappa_of_a_known_table():
    first, second = [0] * 5 + [1] * 5, [0, 0, 0, 0, 1, 0, 1, 1, 1, 1]
    assert kappa(first, second, (0, 1)) == pytest.approx(0.6)


def test_kappa_weighs_a_distance_by_its_square():
    # Observed: one unit is off by 2, so 4. Expected from counts (2, 0, 2) and (3, 0, 1): (2 * 1 + 2 * 3) * 4 / 4 = 8.
    assert kappa([0, 0, 2, 2], [0, 0, 0, 2]) == pytest.approx(1 - 4 / 8)


def test_a_constant_difference_is_no_agreement_by_chance():
    assert kappa([0, 1, 0, 1], [1, 2, 1, 2]) < 0.5
    assert kappa([0, 1, 2, 0], [0, 1, 2, 0]) == 1.0


def test_a_unit_that_one_rater_missed_does_not_count():
    table, known = level_pairs(np.array([0, 1, NAN]), np.array([1, 1, 0]), (0, 1))
    assert table.sum(axis=0).tolist() == [[0, 1], [0, 1]]
    assert known.tolist() == [True, True, False]
    assert kappa([0, 1, 2, NAN], [0, 1, 2, 0]) == 1.0


def test_kappa_is_not_defined_where_both_give_one_level_throughout():
    assert math.isnan(kappa([1, 1, 1], [1, 1, 1]))
    assert math.isnan(kappa([NAN], [1]))


def test_ac2_by_hand():
    assert gwet_ac2(np.array([[0, 0, 1], [0, 0, 0]], dtype=float), (0, 1)) == pytest.approx(7 / 13)


def test_ac2_survives_a_dominant_level_where_kappa_does_not():
    first, second = np.zeros(100), np.zeros(100)
    first[0] = second[1] = 1
    assert kappa(first, second) < 0
    assert gwet_ac2(np.array([first, second]), (0, 1, 2)) > 0.98


def test_ac2_without_a_unit_rated_twice_is_not_known():
    assert gwet_ac2(np.array([[0, NAN], [NAN, 1]]), (0, 1)) is None


def test_alpha_of_the_textbook_table():
    assert ordinal_alpha(TEXTBOOK, (1, 2, 3, 4, 5)) == pytest.approx(0.815, abs=5e-4)


def test_alpha_by_hand_and_the_same_for_negative_levels():
    rating = np.array([[1, 0, 2, 0], [1, 1, 2, NAN]])
    assert ordinal_alpha(rating, (0, 1, 2)) == pytest.approx(1 - 8 / 36)
    assert ordinal_alpha(-rating, (-2, -1, 0)) == pytest.approx(1 - 8 / 36)


def test_alpha_is_not_defined_without_pairs_or_without_variation():
    assert ordinal_alpha(np.array([[1, NAN], [NAN, 0]]), (0, 1)) is None
    assert ordinal_alpha(np.array([[1.0, 1.0], [1.0, NAN]]), (0, 1)) is None


# against reference libraries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_ac2_equals_the_reference_library_on_random_data_with_missing_values(case):
    assert gwet_ac2(np.array(case["ratings"], dtype=float), case["levels"]) == pytest.approx(case["ac2"], abs=1e-10)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_kappa_equals_the_reference_library_on_random_data_with_missing_values(case):
    rated = np.array(case["ratings"], dtype=float)
    for pair, expected in case["kappa"].items():
        one, two = map(int, pair.split(","))
        assert kappa(rated[one], rated[two], case["levels"]) == pytest.approx(expected, abs=1e-10)


@given(ratings)
def test_measures_do_not_depend_on_the_order_of_raters_or_units(pairs):
    rated = np.array(pairs).T
    swapped, turned = rated[::-1], rated[:, ::-1]
    for measure in (gwet_ac2, ordinal_alpha):
        value = measure(rated, (0, 1, 2))
        for other in (swapped, turned):
            found = measure(other, (0, 1, 2))
            assert found is value is None or found == pytest.approx(value)
    assert kappa(*rated) == pytest.approx(kappa(*swapped), nan_ok=True)


# increments ---------------------------------------------------------------------------------------------------------


def test_cosine_zero_rates_signs_offset_and_spread_by_hand():
    first = np.array([[1.0, 0.0], [0.0, 0.0], [2.0, -1.0], [NAN, NAN], [0.0, 0.0]])
    second = np.array([[1.0, 1.0], [0.0, 2.0], [4.0, -2.0], [1.0, 1.0], [0.0, 0.0]])
    found = compare_increments(first, second)
    assert found.cosine_K.tolist() == pytest.approx([2**-0.5, 1.0])
    assert found.moving_K.tolist() == [True, False, True, False, False]
    assert (found.turns, found.zero_in_one, found.zero_in_both) == (4, 0.25, 0.25)
    assert found.equal_sign_A.tolist() == [1.0, 0.5]
    assert found.offset_A.tolist() == [0.5, 0.5]
    assert found.spread_ratio_A.tolist() == pytest.approx([np.std([1, 0, 4, 0]) / np.std([1, 0, 2, 0]), 3.4156503])


def test_a_rater_that_never_moves_has_no_cosine_and_no_spread_ratio():
    found = compare_increments(np.zeros((2, 1)), np.array([[1.0], [2.0]]))
    assert (len(found.cosine_K), found.zero_in_one) == (0, 1.0)
    assert np.isnan(found.spread_ratio_A).all()


def test_increments_without_a_common_turn_are_not_compared():
    assert compare_increments(np.array([[NAN, NAN]]), np.array([[1.0, 0.0]])) is None
