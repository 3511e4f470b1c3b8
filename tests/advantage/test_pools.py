"""Centring and scaling of one pool: hand-computed values, exact zeros, and the properties of docs/credit.md 2."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dialrl.advantage.pools import Moments, PoolReport, centred, scaled
from dialrl.ragged import Floats, Runs, Scattered, Whole

VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=40)


def z(values: list[float] | Floats, **options: bool) -> Floats:
    """z of one pool."""
    moments, deviation = Moments.of(np.asarray(values, dtype=np.float64), None, Whole())
    return scaled(deviation, Whole(), moments, **options)


def test_z_divides_by_the_population_spread() -> None:
    assert z([1.0, 0.5, 0.8, 0.3, 0.6])[0] == pytest.approx(1.4897, abs=5e-5)


def test_the_sample_spread_is_an_option() -> None:
    moments, deviation = Moments.of(np.array([0.0, 1.0]), None, Whole())
    assert moments.spread("sample")[0] == pytest.approx(np.sqrt(0.5))
    assert scaled(deviation, Whole(), moments, kind="sample")[1] == pytest.approx(0.5 / np.sqrt(0.5))


def test_a_least_spread_keeps_small_values_small() -> None:
    moments, deviation = Moments.of(np.array([0.49, 0.51]), None, Whole())
    assert scaled(deviation, Whole(), moments, least=0.1)[1] == pytest.approx(0.1)


def test_leave_one_out_compares_with_the_others() -> None:
    moments, deviation = Moments.of(np.array([2.3, 0.9, 1.0]), None, Whole())
    got = centred(deviation, Whole(), moments, leave_one_out=True)
    assert got == pytest.approx([2.3 - 0.95, 0.9 - 1.65, 1.0 - 1.6])


@pytest.mark.parametrize("values", [[0.5], [0.3] * 8, [0.1 + 0.2, 0.3]])
def test_a_pool_without_comparison_gives_exact_zeros_and_is_counted(values: list[float]) -> None:
    moments, deviation = Moments.of(np.array(values), None, Whole())
    assert not z(values).any()
    assert not centred(deviation, Whole(), moments).any()
    assert not centred(deviation, Whole(), moments, leave_one_out=True).any()
    report = PoolReport.of(moments, "population")
    assert (report.pools, report.degenerate, report.pairs) == (1, 1, 0)


def test_only_members_make_the_pool() -> None:
    # Field case 10: a group of four, one unscored; zero-filling would have given it +.625.
    value, member = np.array([-1.0, -1.0, -0.5, 0.0]), np.array([True, True, True, False])
    moments, deviation = Moments.of(value, member, Whole())
    assert moments.number_P[0] == 3
    assert centred(deviation, Whole(), moments)[:3] == pytest.approx([-1 / 6, -1 / 6, 1 / 3])


def test_a_pool_without_members_gives_zero_and_is_no_pool() -> None:
    pools = Scattered(np.array([0, 0, 1]), 2)
    moments, deviation = Moments.of(np.array([1.0, 2.0, 7.0]), np.array([True, True, False]), pools)
    assert scaled(deviation, pools, moments)[2] == 0.0
    assert PoolReport.of(moments, "population").pools == 1


@given(st.floats(-1e6, 1e6), st.integers(1, 200))
@settings(max_examples=60)
def test_equal_values_give_exact_zeros(value: float, size: int) -> None:
    assert not z([value] * size).any()


@given(VALUES, st.floats(-3, 3), st.floats(-1000, 1000))
@settings(max_examples=100)
def test_scale_and_shift_change_nothing(values: list[float], exponent: float, shift: float) -> None:
    value = np.array(values)
    assume(value.std() >= 0.1)
    tolerance = {"rtol": 1.1e-4, "atol": 1e-9}  # the 1e-8 beside a spread of 1e-4
    np.testing.assert_allclose(z(value * 10.0**exponent), z(value), **tolerance)
    np.testing.assert_allclose(z(value + shift), z(value), **tolerance)


@given(VALUES)
@settings(max_examples=100)
def test_no_z_exceeds_the_root_of_the_others_number(values: list[float]) -> None:
    assert np.abs(z(values)).max() <= np.sqrt(len(values) - 1) + 1e-9


@given(VALUES, st.data())
@settings(max_examples=60)
def test_moments_merged_from_pieces_are_those_of_the_whole(values: list[float], data: st.DataObject) -> None:
    value = np.array(values) + 1000.0
    cut = data.draw(st.integers(0, len(values)))
    merged = Moments.none()
    for piece in (value[:cut], value[cut:]):
        merged = merged.merged(Moments.of(piece, None, Whole())[0])
    assert merged.number_P[0] == len(values)
    assert merged.mean_P[0] == pytest.approx(value.mean(), abs=1e-12 * 1000)
    assert merged.spread("population")[0] == pytest.approx(value.std(), abs=1e-11)


@given(st.lists(VALUES, min_size=1, max_size=6))
@settings(max_examples=40)
def test_pools_do_not_touch_each_other(pools_of_values: list[list[float]]) -> None:
    sizes = [len(values) for values in pools_of_values]
    value = np.concatenate([np.array(values) for values in pools_of_values])
    runs = Runs(np.concatenate([[0], np.cumsum(sizes)]))
    scattered = Scattered(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    alone = np.concatenate([z(values) for values in pools_of_values])
    for pools in (runs, scattered):
        moments, deviation = Moments.of(value, None, pools)
        np.testing.assert_allclose(scaled(deviation, pools, moments), alone, rtol=0, atol=1e-7)
