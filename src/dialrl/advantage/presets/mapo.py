"""MAPO: where a turn leads, against the same turn of the group, mixed with what it earned, against the whole batch."""

from dialrl.advantage.presets.base import UNEVEN_LENGTHS, Preset
from dialrl.advantage.terms import Term

MAPO = Preset(
    name="mapo",
    formula="0.4 z_turn(G) + 0.6 z_batch(r)",
    source="arXiv 2603.06194 v1; weights from the authors' scripts, the batch term on r inferred",
    compared="G with the group's returns at the same turn index; r with every reward of the input.",
    bias=f"{UNEVEN_LENGTHS} The batch term favours scenarios in which rewards come easily.",
    group_of_one="the turn term is 0, the batch term remains.",
    gamma=0.85,
    terms=(
        Term(name="turn", accumulate="return", centre="turn", scale="turn", weight=0.4),
        Term(name="batch", centre="batch", scale="batch", weight=0.6),
    ),
)
