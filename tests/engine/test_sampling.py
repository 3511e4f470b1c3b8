"""Drawing a token: the inverse of the cumulative distribution, at a uniform number that only the seed decides."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.engine.base import SamplingSettings
from dialrl.engine.sampling import check_settings, draw, uniforms
from dialrl.errors import UsageError

WHOLE = SamplingSettings()


def drawn(probabilities: list[float], numbers: list[float], sampling: SamplingSettings = WHOLE):
    logits = torch.log(torch.tensor([probabilities] * len(numbers), dtype=torch.float32))
    tokens, logprobs = draw(logits, torch.tensor(numbers, dtype=torch.float64), sampling)
    return tokens.tolist(), logprobs.exp().tolist()


def test_the_token_is_where_the_cumulative_probability_first_exceeds_the_number():
    tokens, probabilities = drawn([0.5, 0.3, 0.2], [0.0, 0.49, 0.51, 0.79, 0.81, 1 - 2**-53])
    assert tokens == [0, 0, 1, 1, 2, 2]
    assert probabilities == pytest.approx([0.5, 0.5, 0.3, 0.3, 0.2, 0.2], abs=1e-6)


def test_top_p_draws_and_reports_the_renormalised_distribution():
    tokens, probabilities = drawn([0.5, 0.3, 0.15, 0.05], [0.6, 0.63, 0.999], SamplingSettings(top_p=0.8))
    assert tokens == [0, 1, 1]
    assert probabilities == pytest.approx([0.625, 0.375, 0.375], abs=1e-6)


def test_top_k_and_min_p_cut_the_tail():
    assert drawn([0.5, 0.3, 0.15, 0.05], [0.999], SamplingSettings(top_k=3))[0] == [2]
    tokens, probabilities = drawn([0.5, 0.3, 0.15, 0.05], [0.999], SamplingSettings(min_p=0.4))
    assert (tokens, probabilities) == ([1], pytest.approx([0.375], abs=1e-6))


def test_a_tiny_top_p_still_keeps_the_best_token():
    assert drawn([0.2, 0.5, 0.3], [0.999], SamplingSettings(top_p=1e-9)) == ([1], [1.0])


def test_temperature_sharpens_the_distribution_that_is_reported():
    # squares of (.5, .3, .2) over their sum .38: (.6579, .2368, .1053)
    _, probabilities = drawn([0.5, 0.3, 0.2], [0.1, 0.7, 0.95], SamplingSettings(temperature=0.5))
    assert probabilities == pytest.approx([0.65789, 0.23684, 0.10526], abs=1e-4)


def test_at_temperature_zero_the_best_token_is_certain_and_ties_go_to_the_lowest_id():
    assert drawn([0.3, 0.4, 0.3], [0.99], SamplingSettings(temperature=0)) == ([1], [1.0])
    assert drawn([0.4, 0.2, 0.4], [0.99], SamplingSettings(temperature=0)) == ([0], [1.0])


def test_a_token_of_probability_zero_is_never_drawn():
    tokens, _ = drawn([0.0, 0.5, 0.5, 0.0], [0.0, 1 - 2**-53])
    assert tokens == [1, 2]


def test_uniform_numbers_follow_the_seed_alone():
    many, few = uniforms([7, 8, 9], 5), uniforms([9], 3)
    assert np.array_equal(many[2, :3], few[0])
    assert not np.array_equal(many[0], many[1])
    assert ((many >= 0) & (many < 1)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_any_63_bit_seed_is_a_key(seed):
    assert uniforms([seed], 2).shape == (1, 2)


def test_draws_have_the_frequencies_of_the_distribution():
    numbers = uniforms(range(4000), 1)[:, 0].tolist()
    tokens, _ = drawn([0.5, 0.3, 0.2], numbers)
    counts = np.bincount(tokens) / len(tokens)
    assert counts == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -1), ("min_p", 1), ("max_reply_tokens", 0)],
)
def test_a_setting_out_of_bounds_is_named(name, value):
    with pytest.raises(UsageError, match=f"{name} is {value}"):
        check_settings(SamplingSettings(**{name: value}))
