"""Policy losses: pure functions from log-probs and advantages of trained tokens to one loss a token.

A loss sees trained tokens only, so nothing masked can reach an ``exp`` (field case 6). How token losses become one
number is ``dialrl.update.aggregation``; this table is how the stage finds a loss by name. Not in it: ``outcome``, which
trains a reward model.
"""

from collections.abc import Callable, Mapping

from dialrl.update.losses.cispo import cispo_loss
from dialrl.update.losses.gspo import gspo_loss
from dialrl.update.losses.ppo import ppo_loss
from dialrl.update.losses.reinforce import reinforce_loss
from dialrl.update.losses.sft import sft_loss
from dialrl.update.losses.types import ClipSettings, PolicyLoss, PolicyTokens

POLICY_LOSSES: Mapping[str, Callable[[PolicyTokens, ClipSettings], PolicyLoss]] = {
    "ppo": ppo_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "reinforce": reinforce_loss,
    "sft": sft_loss,
}

__all__ = ["POLICY_LOSSES", "ClipSettings", "PolicyLoss", "PolicyTokens"]
