"""Token weights sum up to the mean they stand for, however a step is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.update.aggregation import token_weights
from dialrl.update.config import AggregationName

TURN, DIALOGUE = np.array([0, 0, 1, 2]), np.array([0, 0, 0, 1])


@pytest.mark.parametrize(
    ("aggregation", "weights"),
    [
        ("token", [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        ("turn", [1 / 6, 1 / 6, 1 / 3, 1 / 3]),
        ("dialogue", [1 / 6, 1 / 6, 1 / 6, 1 / 2]),
        ("dialogue-sum-constant", [1 / 20, 1 / 20, 1 / 20, 1 / 20]),
    ],
)
def test_turns_of_two_and_one_tokens_and_another_dialogue_of_one(
    aggregation: AggregationName, weights: list[float]
) -> None:
    assert token_weights(aggregation, TURN, DIALOGUE, 10).tolist() == pytest.approx(weights)


def test_ten_tokens_of_loss_one_and_ninety_of_loss_zero_give_a_tenth() -> None:
    # Field case 15: a mean of micro-batch means would give 0.5.
    losses = np.array([1.0] * 10 + [0.0] * 90)
    weights = token_weights("token", np.arange(100), np.arange(100))
    parts = [float((losses[part] * weights[part]).sum()) for part in (slice(0, 10), slice(10, 100))]
    assert sum(parts) == pytest.approx(0.1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.sampled_from(["token", "turn", "dialogue"]))
def test_the_weights_of_a_mean_sum_to_one(sets: list[int], aggregation: AggregationName) -> None:
    turn = np.sort(np.array(sets))
    assert token_weights(aggregation, turn, turn // 2).sum() == pytest.approx(1.0)
