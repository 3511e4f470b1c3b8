"""The state model against the worked example of the specification, its identities, and its degenerate cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dialrl.errors import InputError
from dialrl.state import model

DEFICIT = (-17.0, -18.0, -13.0)
coordinates = st.integers(-400, 400).map(lambda tenths: tenths / 10)
points = arrays(np.float64, (5, 3), elements=coordinates)
one_point = arrays(np.float64, (3,), elements=coordinates)


def test_worked_example_of_the_specification():
    after = model.positions_after([(1, 1, 1)], DEFICIT)
    assert after.tolist() == [[-16, -17, -12]]
    assert model.norm(DEFICIT) == pytest.approx(27.9643, abs=5e-5)
    assert model.zone_distance(DEFICIT) == pytest.approx(26.249, abs=5e-4)
    assert model.zone_distance(after[0]) == pytest.approx(24.536, abs=5e-4)
    assert model.zone_distance(DEFICIT) - model.zone_distance(after[0]) == pytest.approx(1.713, abs=5e-4)
    assert model.alignment((1, 1, 1), DEFICIT) == pytest.approx(0.991, abs=5e-4)
    assert model.energy_step((1, 1, 1), DEFICIT) == pytest.approx(48 / np.sqrt(782), abs=1e-12)
    assert model.direction(DEFICIT) == pytest.approx([0.6079, 0.6437, 0.4649], abs=5e-5)
    assert model.projection(after[0], DEFICIT) == pytest.approx(-26.2478, abs=5e-5)


def test_surplus_is_never_penalised_and_the_zone_reaches_to_minus_epsilon():
    assert model.zone_distance([(-1, -1, -1), (0, 50, 3), (-2, 50, 50)]).tolist() == [0, 0, 1]
    assert model.zone_distance((-2, 0, 0), epsilon=2.0) == 0


def test_axis_weights_stand_inside_the_root():
    assert model.zone_distance((-2, -3, -1), weights=[4, 9, 100]) == pytest.approx(np.sqrt(4 * 1 + 9 * 4))
    assert model.zone_distance((-2, -3, -1), weights=[0, 0, 1]) == 0


@pytest.mark.parametrize("weights", [[1, 1], [1, 1, -1], [1, 1, float("nan")]])
def test_axis_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(InputError, match="expected 3 numbers >= 0"):
        model.zone_distance(DEFICIT, weights=weights)


def test_a_bare_number_is_no_state():
    with pytest.raises(InputError, match="one coordinate an axis"):
        model.norm(3.0)


def test_without_a_deficit_there_is_no_direction():
    zero = (0, 0, 0)
    assert model.direction(zero).tolist() == [0, 0, 0]
    assert model.energy_step((1, 2, 3), zero) == 0
    assert model.energy((1, 2, 3), zero) == 0
    assert model.alignment((1, 2, 3), zero) == 0
    assert model.projection((1, 2, 3), zero) == 0


def test_a_turn_that_changes_nothing_has_alignment_zero():
    assert model.alignment([(0, 0, 0), (17, 18, 13), (-17, -18, -13)], DEFICIT) == pytest.approx([0, 1, -1])


def test_a_missing_turn_carries_the_position_forward():
    nan = np.nan
    after = model.positions_after([(1, 1, 1), (nan, nan, nan), (0, 2, 0)], DEFICIT)
    assert after.tolist() == [[-16, -17, -12], [-16, -17, -12], [-16, -15, -12]]


def test_a_missing_turn_stays_unknown_elsewhere():
    missing = (np.nan,) * 3
    assert np.isnan(model.energy_step(missing, DEFICIT))
    assert np.isnan(model.alignment(missing, DEFICIT))
    assert np.isnan(model.zone_distance(missing))


def test_any_number_of_axes_and_a_deficit_a_row():
    position = np.array([[-3.0, -4.0], [-1.0, 5.0]])
    deficit = np.array([[-6.0, -8.0], [-2.0, 0.0]])
    assert model.projection(position, deficit) == pytest.approx([-5, -1])
    assert model.zone_distance(np.full((2, 5), -2.0)) == pytest.approx([np.sqrt(5)] * 2)


@settings(max_examples=50, deadline=None)
@given(points, one_point)
def test_energy_is_projection_plus_the_length_of_the_deficit(position, deficit):
    if not np.any(deficit):
        return
    expected = model.projection(position, deficit) + model.norm(deficit)
    assert model.energy(position, deficit) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(points, one_point)
def test_energy_steps_add_up_to_the_energy(increment, deficit):
    position = model.positions_after(increment, deficit)
    steps = model.energy_step(increment, deficit)
    assert np.cumsum(steps) == pytest.approx(model.energy(position, deficit), abs=1e-8)


@settings(max_examples=50, deadline=None)
@given(points)
def test_a_row_gives_the_same_bits_alone_as_in_a_table(position):
    together = model.zone_distance(position, weights=[1, 2, 3])
    assert [model.zone_distance(row, weights=[1, 2, 3]) for row in position] == together.tolist()
