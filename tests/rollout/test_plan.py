"""Which dialogues a rollout holds is decided before the first token: scenarios in turn, groups, blocks."""

import pytest

from dialrl.errors import InputError
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.plan import blocks, draw_groups, no_scenarios, plan_dialogues
from dialrl.scenario.card import Scenario

SCENARIOS = [Scenario(f"s{number:02d}", "train") for number in range(10)]


def drawn(count=10, **options):
    return [group.group_id for group in draw_groups(SCENARIOS[:count], RolloutConfig(**options))]


def test_every_scenario_is_met_before_one_comes_again():
    met = [name.split("#")[0] for iteration in range(5) for name in drawn(groups=4, iteration=iteration)]
    assert sorted(met[:10]) == sorted(met[10:20]) == [scenario.scenario_id for scenario in SCENARIOS]
    assert met[:10] != met[10:20]


def test_the_order_is_the_seeds():
    assert drawn(groups=10) == drawn(groups=10)
    assert drawn(groups=10) != drawn(groups=10, seed=1)
    assert drawn(groups=10) != sorted(drawn(groups=10))


def test_spare_groups_of_an_iteration_are_not_those_of_the_next():
    config = RolloutConfig(groups=3, resample_degenerate=2, grading="live")
    first = [group.group_id for group in draw_groups(SCENARIOS, config, extra=2)]
    second = [group.group_id for group in draw_groups(SCENARIOS, config.updated(iteration=1), extra=2)]
    assert len(set(first + second)) == 10


def test_a_scenario_met_twice_in_one_rollout_is_a_second_group():
    assert sorted(drawn(count=2, groups=4)) == ["s00", "s00#1", "s01", "s01#1"]
    assert drawn(count=1, groups=3) == ["s00", "s00#1", "s00#2"]


def test_dialogues_stand_in_the_order_of_the_file():
    plans = plan_dialogues(draw_groups(SCENARIOS, RolloutConfig(groups=3)), 2)
    assert [plan.order for plan in plans] == list(range(6))
    assert [plan.dialogue_id for plan in plans] == sorted(plan.dialogue_id for plan in plans)
    assert [plan.sample for plan in plans] == [0, 1] * 3


def test_blocks_are_cut_by_number_alone():
    plans = plan_dialogues(draw_groups(SCENARIOS, RolloutConfig(groups=3)), 3)
    assert [[plan.order for plan in block] for block in blocks(plans, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_a_split_without_scenarios_is_refused():
    with pytest.raises(InputError, match=r"Environment 'demo' has no scenarios in split 'dev'\."):
        draw_groups([], RolloutConfig(split="dev"))


def test_replacing_groups_needs_their_rewards():
    with pytest.raises(ValueError, match="needs the rewards of the groups: set grading to live"):
        RolloutConfig(resample_degenerate=1)


def test_an_empty_split_is_explained_by_the_options_that_empty_it():
    hidden = no_scenarios("support", "train", {"cards": "pl.yaml", "languages": ["en"], "actor": {"model": "m"}})
    assert "in the languages en (environment_options.languages; [] takes all)" in hidden
    assert "among the cards of 'pl.yaml'" in hidden
    assert "actor" not in hidden
    unmeasured = no_scenarios("support", "test", {"cards": "mine.yaml"})
    assert "leave `cards` out of evaluate.environment_options" in unmeasured
