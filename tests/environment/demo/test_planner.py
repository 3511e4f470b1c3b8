import random
import statistics

import pytest

from dialrl.environment.demo import scenarios, solve
from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.agents import PlannedAgent, dialogue_return
from dialrl.environment.demo.planner import expected_reward, outcomes, planner, prior_guarded
from dialrl.environment.demo.policy_data import training_dialogue
from dialrl.environment.demo.rules import State
from dialrl.environment.demo.tracker import track

HELD_OUT = scenarios("test")


def test_the_four_values_stand_in_order_and_payoff_is_delayed() -> None:
    reference = solve(HELD_OUT)
    assert reference.silent == 0.0
    assert reference.silent < reference.myopic < reference.optimum <= reference.clairvoyant
    assert reference.share(reference.myopic) <= 0.55
    assert reference.share(reference.optimum) == 1.0


def test_both_splits_have_the_same_values() -> None:
    train, test = solve(scenarios("train")), solve(HELD_OUT)
    assert train.optimum == pytest.approx(test.optimum)
    assert train.myopic == pytest.approx(test.myopic)


@pytest.mark.parametrize("kind", ["silent", "myopic", "optimum"])
def test_simulation_through_the_text_agrees_with_the_exact_value(kind: str) -> None:
    agent = PlannedAgent(kind, prior_guarded(HELD_OUT))  # type: ignore[arg-type]
    returns = [dialogue_return(agent, given, seed)[0] for given in HELD_OUT for seed in range(8)]
    error = statistics.stdev(returns) / len(returns) ** 0.5
    assert statistics.mean(returns) == pytest.approx(getattr(solve(HELD_OUT), kind), abs=3.5 * error + 1e-9)


def test_one_turn_by_hand() -> None:
    # Need C: P_0 = (-12, -7, -7), d = sqrt(11^2 + 6^2 + 6^2). The best single act is a paraphrase: (-11, -7, -7).
    value, act = planner("optimum", 1).plan(0, State(0), 0.5)
    assert act is Act.PARAPHRASE
    assert value == pytest.approx(193**0.5 - 172**0.5)


def test_three_turns_by_hand() -> None:
    # Open user: paraphrase (C -11); ask, unless that moment is raw (0.15), and then resonate (C -8, A -4). In a raw
    # moment validate (A -6) instead, and paraphrase again (C -10) if the last moment is steady.
    value, _ = planner("optimum", 3).plan(0, State(0), 0.0)
    told = (7**2 + 3**2 + 6**2) ** 0.5
    comforted = 0.85 * (9**2 + 5**2 + 6**2) ** 0.5 + 0.15 * (10**2 + 5**2 + 6**2) ** 0.5
    assert value == pytest.approx(193**0.5 - 0.85 * told - 0.15 * comforted)


def test_the_acts_left_out_are_never_better() -> None:
    """Brute force over every act and text-visible outcome on a short horizon."""

    def best(turn: int, state: State, belief: float) -> float:
        if turn == 3 or state.distance == 0:
            return 0.0
        return max(
            sum(each.probability * (each.reward + best(turn + 1, each.state, each.belief)) for each in followers)
            for followers in (outcomes(state, belief, act) for act in Act)
        )

    for state in (State(0), State(1, trust=1), State(2, revealed=True, trust=3), State(0, raw=True, last=Act.ASK)):
        for belief in (0.25, 0.75):
            assert planner("optimum", 3).plan(0, state, belief)[0] == pytest.approx(best(0, state, belief))


def test_no_act_earns_more_at_once_than_the_myopic_one() -> None:
    draws = random.Random(0)
    for seed in range(50):
        transcript, _ = training_dialogue(seed)
        seen = track(transcript[: 1 + 2 * draws.randrange(len(transcript) // 2)])
        _, act = planner("myopic").plan(0, seen.state, 0.5)
        chosen = expected_reward(seen.state, 0.5, act)
        assert all(expected_reward(seen.state, 0.5, other) <= chosen + 1e-9 for other in Act)


def test_beliefs_are_the_bayes_posteriors_of_the_cue() -> None:
    # After one kindness an open user (trust needed 1) sounds warm with 0.8, a guarded one (2) with 0.2.
    warm = [each for each in outcomes(State(0), 0.5, Act.VALIDATE) if each.symbol.name == "WARM"]
    assert [each.belief for each in warm] == [pytest.approx(0.2)]
    assert sum(each.probability for each in outcomes(State(0), 0.5, Act.VALIDATE)) == pytest.approx(1.0)
