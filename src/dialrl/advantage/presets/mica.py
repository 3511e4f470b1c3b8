"""MICA: where a turn leads, against the same turn of the group, mixed with what it earned, against all its turns."""

from dialrl.advantage.presets.base import UNEVEN_LENGTHS, Preset
from dialrl.advantage.terms import Term

MICA = Preset(
    name="mica",
    formula="0.5 z_turn(G) + 0.5 z_group(r); the first weight (--turn-weight) is best in 0.5-0.7",
    source="arXiv 2603.06194 v2, v3",
    compared="G with the group's returns at the same turn index; r with all rewards of the group.",
    bias=f"{UNEVEN_LENGTHS} The group term compares early with late turns: where rewards fall with time, it favours"
    " early turns.",
    group_of_one="the turn term is 0; the group term compares the dialogue's turns with each other.",
    gamma=0.85,
    terms=(
        Term(name="turn", accumulate="return", centre="turn", scale="turn", weight=0.5),
        Term(name="group", centre="group", scale="group", weight=0.5),
    ),
)
