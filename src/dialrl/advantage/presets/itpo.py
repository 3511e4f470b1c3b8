"""ITPO: rewards of turns by an implicit reward model, against the group's other dialogues, summed over what follows."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.terms import Term

ITPO = Preset(
    name="itpo",
    formula="z_batch of sum over j >= k of (n r_j - sum over the group's n dialogues of their mean r) / (n - 1)",
    source="arXiv 2603.23550 (abstract, and the authors' code); there the last step is over the trained tokens of the"
    " batch, here over its turns.",
    compared="the turn's reward with the mean rewards of the group's other dialogues; the sums with those of all turns"
    " of the input.",
    bias="Centred rewards are summed over the turns that remain, so credit grows with their number, up or down. The"
    " last step compares early turns with late ones, and scenarios with each other.",
    group_of_one="0 before the last step: as good as the mean of the input.",
    needs="a file made with: dialrl returns --reward implicit, on what dialrl judge --kind implicit-reward wrote",
    terms=(
        Term(
            name="implicit",
            signal="implicit",
            accumulate="return",
            order="normalise-then-return",
            gamma=1.0,
            centre="dialogue-means",
            leave_one_out=True,
            whiten="batch",
        ),
    ),
)
