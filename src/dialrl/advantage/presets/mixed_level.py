"""A value of the dialogue plus a value of the turn: MT-GRPO (by turn index) and GiGPO (by state)."""

from dialrl.advantage.presets.base import Preset
from dialrl.advantage.terms import DIALOGUE_CHANNELS, TURN_CHANNELS, Term

MT_GRPO = Preset(
    name="mt-grpo",
    formula="z_turn(r of the turn) + z_dialogue-group(outcome), the second on every turn",
    source="arXiv 2505.11821 v1 and the authors' code (both weights 1), for two turns; more turns and the turn that"
    " ends a dialogue inferred",
    compared="the turn's own reward with the group's at the same turn index; the dialogue's outcome with its group's.",
    bias="A turn is not credited for what it makes possible later, except through the outcome that all turns share."
    " Late turns are compared only with the dialogues that reach them.",
    group_of_one="0 on every turn: no learning signal.",
    needs="channels of turns; --reward outcome beside them, or the dialogue's sum of rewards stands for it",
    terms=(
        Term(name="turn", signal=TURN_CHANNELS, centre="turn", scale="turn"),
        Term(
            name="outcome", signal=DIALOGUE_CHANNELS, accumulate="sum", centre="dialogue-group", scale="dialogue-group"
        ),
    ),
)
GIGPO = Preset(
    name="gigpo",
    formula="z_dialogue-group(sum r) + z_state(G); --scale none for the paper's variant without spreads",
    source="arXiv 2505.10978 (read in summaries and published code); both weights 1, gamma .95 as configured there",
    compared="the dialogue's sum with the sums of its group; G with the returns of all turns of the group that were"
    " taken in the same state (--anchor), at whatever turn.",
    bias="Where states do not come back, the second term is 0 and this is grpo: see the share of degenerate pools."
    " The default anchor is the last message alone, so turns with different histories may count as one state, and"
    " early turns of a state have more reward ahead of them than late ones.",
    group_of_one="only states that the dialogue visits twice are compared, with themselves.",
    gamma=0.95,
    terms=(
        Term(name="dialogue", accumulate="sum", centre="dialogue-group", scale="dialogue-group"),
        Term(name="state", accumulate="return", centre="state", scale="state"),
    ),
)
