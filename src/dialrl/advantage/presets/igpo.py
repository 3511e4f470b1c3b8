"""IGPO: each turn's gain in the policy's own belief in the answer, and the outcome, normalised first, then summed."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.terms import Order, Scope, Term

_GAIN = "information-gain"
_FIRST: Order = "normalise-then-return"


def _ending(name: str, signal: str, scale: Scope) -> Term:
    """A value of the dialogue, normalised over the group's dialogues; it stands on the last turn and is discounted."""
    return Term(
        name=name, signal=signal, accumulate="return", order=_FIRST, gamma=1.0, centre="dialogue-group", scale=scale
    )


_GAIN_TERM = Term(name=_GAIN, signal=_GAIN, accumulate="return", order=_FIRST, gamma=1.0, centre="group", scale="group")

IGPO = Preset(
    name="igpo",
    formula="sum over j >= k of gamma^(j-k) (z_group(gain_j) + z_dialogue-group(outcome + format), on the last turn);"
    " gamma 1",
    source="arXiv 2510.14967 v2; --joint: one pool for both (v1); --format-channel: format centred, not scaled",
    compared="a gain with all gains of the group, the dialogue's outcome with those of its group.",
    bias="Centred gains are summed over the turns that remain, so the return depends on their number: the same total"
    " gain in more turns ranks lower. See --centre information-gain=turn or =none, --leave-one-out, --rescale"
    " root-count.",
    group_of_one="the outcome term is 0; the gain term compares the dialogue's turns with each other.",
    needs="a file made with: dialrl returns --reward information-gain --reward outcome --reward format",
    terms=(_GAIN_TERM, _ending("outcome", "outcome+format?", "dialogue-group")),
    variants={
        "joint": (
            Term(
                name="joint",
                signal=_GAIN,
                pooled_with="outcome+format?",
                accumulate="return",
                order=_FIRST,
                gamma=1.0,
                centre="group",
                scale="group",
            ),
        ),
        "format_channel": (
            _GAIN_TERM,
            _ending("outcome", "outcome", "dialogue-group"),
            _ending("format", "format", "none"),
        ),
    },
)
