"""A2TGPO: information gain compared at the same turn index, summed without growing with length, and the outcome."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.terms import Term

_GAIN = "information-gain"

A2TGPO = Preset(
    name="a2tgpo",
    formula="0.3 sum over j >= k of gamma^(j-k) z_turn(gain_j) / sqrt(number of gains left)"
    " + z_dialogue-group(outcome + format), the second on every turn; gamma 1",
    source="arXiv 2605.06200; weight .3 and gamma 1 from a published reading of the authors' code. The paper's adaptive"
    " clipping belongs to the loss and is not part of the preset.",
    compared="a gain with the gains of the group at the same turn index; the dialogue's outcome with its group's.",
    bias="Every turn of a dialogue gets the same credit for the outcome. Late gains are compared only with the"
    " dialogues that reach them.",
    group_of_one="0 on every turn: no learning signal.",
    needs="a file made with: dialrl returns --reward information-gain --reward outcome --reward format",
    terms=(
        Term(
            name=_GAIN,
            signal=_GAIN,
            accumulate="return",
            order="normalise-then-return",
            gamma=1.0,
            centre="turn",
            scale="turn",
            rescale="root-count",
            weight=0.3,
        ),
        Term(
            name="outcome", signal="outcome+format?", accumulate="sum", centre="dialogue-group", scale="dialogue-group"
        ),
    ),
)
