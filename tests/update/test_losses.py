"""Each loss gives the value of its formula, worked out by hand, and the gradient that goes with it."""

import math

import pytest
import torch

from dialrl.update.losses import POLICY_LOSSES, ClipSettings, PolicyLoss, PolicyTokens
from dialrl.update.losses.corrections import divergence_k2, divergence_k3, importance_weight
from dialrl.update.losses.gspo import unit_mean
from dialrl.update.losses.types import LOG_RATIO_LIMIT

CLIP = ClipSettings(0.2, 0.28, 10.0)


def tokens(ratios: list[float], advantages: list[float], unit: list[int] | None = None) -> PolicyTokens:
    old = torch.full((len(ratios),), -1.0, dtype=torch.float64)
    logprobs = (old + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    return PolicyTokens(
        logprobs, old, torch.tensor(advantages, dtype=torch.float64), torch.tensor(unit or [0] * len(ratios))
    )


def evaluate(name: str, given: PolicyTokens, clip: ClipSettings = CLIP) -> tuple[PolicyLoss, list[float]]:
    outcome = POLICY_LOSSES[name](given, clip)
    (gradient,) = torch.autograd.grad(outcome.loss_T.sum(), given.logprobs_T)
    return outcome, gradient.tolist()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 1.0, -1.0, -1.0, False),
        (1.5, 1.0, -1.28, 0.0, True),  # upper clip
        (0.5, 1.0, -0.5, -0.5, False),  # the lower clip does not bind for a good token
        (1.5, -1.0, 1.5, 1.5, False),
        (0.5, -1.0, 0.8, 0.0, True),  # lower clip
        (12.0, -1.0, 10.0, 0.0, True),  # dual clip
        (12.0, -0.5, 5.0, 0.0, True),
        (2.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_ppo(ratio: float, advantage: float, loss: float, gradient: float, clipped: bool) -> None:
    outcome, gradients = evaluate("ppo", tokens([ratio], [advantage]))
    assert outcome.loss_T.item() == pytest.approx(loss)
    assert gradients == [pytest.approx(gradient)]
    assert outcome.clipped_T.tolist() == [clipped]


def test_gspo_gives_all_tokens_of_a_dialogue_their_geometric_mean() -> None:
    given = tokens([math.exp(0.0002), math.exp(0.0004), 1.0], [1.0, 1.0, -1.0], unit=[0, 0, 1])
    outcome, gradients = evaluate("gspo", given, ClipSettings(3e-4, 4e-4))
    shared = math.exp(0.0003)
    assert outcome.ratio_T.tolist() == pytest.approx([shared, shared, 1.0])
    assert gradients == pytest.approx([-shared, -shared, 1.0])


def test_gspo_clips_the_whole_dialogue() -> None:
    outcome, gradients = evaluate("gspo", tokens([math.exp(0.001)] * 2, [1.0, 1.0]), ClipSettings(3e-4, 4e-4))
    assert outcome.clipped_T.all()
    assert gradients == [0.0, 0.0]
    assert outcome.loss_T.tolist() == pytest.approx([-1.0004] * 2)


def test_a_long_dialogue_does_not_overflow_the_sequence_ratio() -> None:
    # Field case 18: 2,000 tokens x log-ratio .005; the product would be e^10, the geometric mean is e^.005.
    outcome, _ = evaluate("gspo", tokens([math.exp(0.005)] * 2000, [1.0] * 2000), ClipSettings(3e-4, 4e-4))
    assert outcome.ratio_T.tolist() == pytest.approx([math.exp(0.005)] * 2000)
    assert outcome.clipped_T.double().mean() == 1.0


def test_unit_means_do_not_need_sorted_units() -> None:
    assert unit_mean(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([7, 2, 7])).tolist() == [2.0, 5.0, 2.0]


def test_cispo_clips_the_weight_and_keeps_the_gradient() -> None:
    given = tokens([2.0, 0.5], [1.0, 1.0])
    outcome, gradients = evaluate("cispo", given)
    assert gradients == pytest.approx([-1.28, -0.5])
    expected = (-torch.tensor([1.28, 0.5]) * given.logprobs_T.detach()).tolist()
    assert outcome.loss_T.tolist() == pytest.approx(expected)
    assert outcome.clipped_T.tolist() == [True, False]


def test_reinforce_ignores_the_ratio() -> None:
    outcome, gradients = evaluate("reinforce", tokens([3.0], [0.5]))
    assert gradients == [-0.5]
    assert outcome.loss_T.item() == pytest.approx(-0.5 * (-1.0 + math.log(3.0)))


def test_sft_ignores_the_advantage() -> None:
    _, gradients = evaluate("sft", tokens([1.0, 2.0], [5.0, -3.0]))
    assert gradients == [-1.0, -1.0]


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo", "reinforce", "sft"])
@pytest.mark.parametrize("hole", [math.nan, -math.inf])
def test_what_is_not_trained_cannot_reach_the_loss(name: str, hole: float) -> None:
    # Field case 6: selecting comes before exp, so the gradient at the masked place is exactly 0 and not NaN.
    logprobs = torch.tensor([-1.0, hole], dtype=torch.float64, requires_grad=True)
    trained = torch.tensor([0])

    def loss(all_T: torch.Tensor) -> torch.Tensor:
        chosen = all_T.index_select(0, trained)
        ones = torch.ones(1, dtype=torch.float64)
        return POLICY_LOSSES[name](PolicyTokens(chosen, -ones, ones, torch.zeros(1).long()), CLIP).loss_T.sum()

    value = loss(logprobs)
    value.backward()
    assert value.item() == loss(torch.tensor([-1.0], dtype=torch.float64)).item()
    assert logprobs.grad is not None
    assert logprobs.grad[1].item() == 0.0
    assert math.isfinite(logprobs.grad[0].item())


def test_an_absurd_ratio_stays_finite() -> None:
    given = PolicyTokens(
        torch.tensor([0.0, -2000.0], requires_grad=True), torch.tensor([-2000.0, 0.0]), torch.ones(2), torch.zeros(2)
    )
    outcome, gradients = evaluate("ppo", given)
    assert torch.isfinite(outcome.loss_T).all()
    assert outcome.ratio_T.tolist() == pytest.approx([math.exp(LOG_RATIO_LIMIT), math.exp(-LOG_RATIO_LIMIT)])
    assert all(math.isfinite(value) for value in gradients)


def test_the_importance_weight_is_truncated_from_above_only() -> None:
    old, sampler = torch.tensor([-1.0, -3.0, -1.0]), torch.tensor([-3.0, -1.0, -1.0])
    assert importance_weight(old, sampler, 2.0).tolist() == pytest.approx([2.0, math.exp(-2.0), 1.0])


def test_the_importance_weight_carries_no_gradient() -> None:
    assert not importance_weight(torch.zeros(1, requires_grad=True), torch.zeros(1), 2.0).requires_grad


def test_divergences_of_a_known_difference() -> None:
    new, reference = torch.tensor([-1.0], dtype=torch.float64), torch.tensor([-0.8], dtype=torch.float64)
    assert divergence_k2(new, reference).item() == pytest.approx(0.02)
    assert divergence_k3(new, reference).item() == pytest.approx(0.0214027581601699)
    assert divergence_k2(reference, reference).item() == divergence_k3(reference, reference).item() == 0.0
