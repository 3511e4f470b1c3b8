"""One value a dialogue, the undiscounted sum of its rewards, the same on all its turns: GRPO and its relatives."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.terms import Term

_ONE_CREDIT = "Every turn of a dialogue gets the same credit, good and bad turns alike."

GRPO = Preset(
    name="grpo",
    formula="z_dialogue-group(sum r)",
    source="arXiv 2402.03300",
    compared="the dialogue's sum with the sums of its group.",
    bias=f"{_ONE_CREDIT} Dividing by the spread weights nearly tied groups as much as clear ones.",
    group_of_one="0 on every turn: no learning signal.",
    terms=(Term(name="dialogue", accumulate="sum", centre="dialogue-group", scale="dialogue-group"),),
)
DR_GRPO = Preset(
    name="dr-grpo",
    formula="sum r - mean_dialogue-group(sum r)",
    source="arXiv 2503.20783",
    compared="the dialogue's sum with the mean sum of its group, itself included.",
    bias=f"{_ONE_CREDIT} The baseline holds the dialogue itself, which shrinks credit by (n - 1)/n.",
    group_of_one="0 on every turn: no learning signal.",
    terms=(Term(name="dialogue", accumulate="sum", centre="dialogue-group"),),
)
RLOO = Preset(
    name="rloo",
    formula="sum r - mean of the other dialogues' sums",
    source="arXiv 2402.14740",
    compared="the dialogue's sum with the mean sum of the others in its group.",
    bias=f"{_ONE_CREDIT} The baseline is unbiased.",
    group_of_one="0 on every turn (there is no other member): no learning signal.",
    terms=(Term(name="dialogue", accumulate="sum", centre="dialogue-group", leave_one_out=True),),
)
REINFORCE_PLUS_PLUS = Preset(
    name="reinforce++",
    formula="z_dialogue-batch(sum r)",
    source="arXiv 2501.03262 (published over tokens; here over dialogues)",
    compared="the dialogue's sum with the sums of all dialogues of the input.",
    bias=f"{_ONE_CREDIT} Scenarios in which rewards come easily are favoured.",
    group_of_one="compared with the other groups.",
    terms=(Term(name="dialogue", accumulate="sum", centre="dialogue-batch", scale="dialogue-batch"),),
)
REINFORCE_PLUS_PLUS_BASELINE = Preset(
    name="reinforce++-baseline",
    formula="(sum r - mean_dialogue-group) / std_dialogue-batch of what is left",
    source="arXiv 2501.03262",
    compared="the dialogue's sum with the mean sum of its group, in units of the whole input's spread.",
    bias=f"{_ONE_CREDIT} One spread for all groups: a group with wide sums dominates.",
    group_of_one="0 on every turn: no learning signal.",
    terms=(Term(name="dialogue", accumulate="sum", centre="dialogue-group", scale="dialogue-batch"),),
)
