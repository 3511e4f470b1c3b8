"""Sign-flip test, Holm's correction, effect size: by hand, against scipy, and their properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from dialrl.evaluate.significance import holm, paired_effect_size, sign_flip_p

numbers = st.floats(-10, 10).map(lambda value: round(value, 2))


def test_sign_flips_by_hand():
    assert sign_flip_p(np.array([1.0, 2.0, 3.0])) == 0.25
    assert sign_flip_p(np.array([2.0, -2.0])) == 1.0
    assert sign_flip_p(np.zeros(4)) == 1.0


@given(st.lists(numbers, min_size=2, max_size=7))
def test_all_sign_patterns_give_scipys_p(differences):
    def mean(values, axis):
        return np.mean(values, axis=axis)

    ours = sign_flip_p(np.array(differences))
    exact = permutation_test((np.array(differences),), mean, permutation_type="samples", n_resamples=np.inf)
    assert ours == pytest.approx(float(exact.pvalue))


def test_random_sign_patterns_come_near_the_exact_p_and_depend_on_the_seed_alone():
    generator = np.random.default_rng(3)
    differences = generator.normal(0.4, 1.0, size=20)
    exact = permutation_test(
        (differences,), lambda values, axis: np.mean(values, axis=axis), permutation_type="samples", n_resamples=20_000,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert sign_flip_p(differences) == pytest.approx(float(exact.pvalue), abs=0.02)
    assert sign_flip_p(differences, seed=1) == sign_flip_p(differences, seed=1)


def test_a_random_p_is_never_zero():
    assert sign_flip_p(np.ones(30), resamples=100) == pytest.approx(1 / 101)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrected_values_keep_their_order_and_never_shrink(values):
    corrected = holm(values)
    assert all(value <= after <= 1 for value, after in zip(values, corrected, strict=True))
    ranked = [corrected[place] for place in np.argsort(values, kind="stable")]
    assert ranked == sorted(ranked)
    assert min(corrected) == pytest.approx(min(1.0, len(values) * min(values)))


def test_effect_size_by_hand():
    assert paired_effect_size(np.array([1.0, 2.0, 3.0])) == 2.0
    assert paired_effect_size(np.array([1.0, 1.0])) is None
    assert paired_effect_size(np.array([1.0])) is None
