"""The return normalised at one level only: the baselines of MAPO and MICA."""

from dialrl.advantage.presets.base import UNEVEN_LENGTHS, Preset
from dialrl.advantage.terms import Scope, Term

_SOURCE = "single-level baselines of arXiv 2603.06194"
_EARLY_TURNS = (
    "A return shrinks towards the end of a dialogue because fewer rewards are left in it, so early turns look good and"
    " late turns bad whatever was said; adding the same amount to every reward changes the result."
)


def _return_at(name: str, scope: Scope) -> tuple[Term, ...]:
    return (Term(name=name, accumulate="return", centre=scope, scale=scope),)


TURN_ONLY = Preset(
    name="turn-only",
    formula="z_turn(G)",
    source=_SOURCE,
    compared="G with the group's returns at the same turn index.",
    bias=UNEVEN_LENGTHS,
    group_of_one="0 on every turn: no learning signal.",
    gamma=0.85,
    terms=_return_at("turn", "turn"),
)
GROUP_ONLY = Preset(
    name="group-only",
    formula="z_group(G)",
    source=_SOURCE,
    compared="G with the returns of all turns of the group.",
    bias=_EARLY_TURNS,
    group_of_one="the dialogue's turns are compared with each other.",
    gamma=0.85,
    terms=_return_at("group", "group"),
)
BATCH_ONLY = Preset(
    name="batch-only",
    formula="z_batch(G)",
    source=_SOURCE,
    compared="G with the returns of all turns of the input.",
    bias=f"{_EARLY_TURNS} Scenarios in which rewards come easily are favoured.",
    group_of_one="compared with the other groups.",
    gamma=0.85,
    terms=_return_at("batch", "batch"),
)
