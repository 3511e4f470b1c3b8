"""The fast tier's policy: a softmax over acts, linear in what the dialogue shows.

It speaks through the demo world's sentences, so user, judge and files are those of a language model's run; only the
choice is learnt here, in numpy. Not here: the loop (``fast``), credit (the stages).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import Symbol
from dialrl.environment.demo.policy_data import WEAK, Mixture
from dialrl.environment.demo.rules import TRUST_LIMIT, USES, State

Floats = NDArray[np.float64]

CHOICES = tuple(act for act in Act if act not in (Act.REPEAT, Act.GARBLED))
RARE = 1e-4
MOST_TURNS = 12  # later turns look like this one

_BLOCKS = (
    ("told", 2),
    ("line", len(Symbol)),
    ("line when told", len(Symbol)),
    ("last act", len(Act)),
    ("last act when told", len(Act)),
    ("turn", MOST_TURNS + 1),
    ("trust", TRUST_LIMIT + 1),
    ("need", 3),
    ("used up", len(USES)),
)
_OFFSETS = dict(zip((name for name, _ in _BLOCKS), np.cumsum([0, *(size for _, size in _BLOCKS)]), strict=False))
FEATURES = sum(size for _, size in _BLOCKS)


@dataclass(frozen=True)
class Visible:
    """What a policy can read in a dialogue before it speaks."""

    state: State
    symbol: Symbol
    turn: int


def encode(seen: Visible) -> Floats:
    """(F,) 0/1 features: the user's last line, the last act, turn, trust, need, and which acts are used up."""
    values_F = encode_state(seen.state, seen.symbol)
    values_F[turn_feature(seen.turn)] = 1.0
    return values_F


def turn_feature(turn: int) -> int:
    """Place of the feature that says which turn it is."""
    return int(_OFFSETS["turn"]) + min(turn, MOST_TURNS)


def encode_state(state: State, symbol: Symbol) -> Floats:
    """(F,) the features without that of the turn."""
    when = " when told" if state.revealed else ""
    values_F = np.zeros(FEATURES)
    for name, place in (
        ("told", int(state.revealed)),
        (f"line{when}", int(symbol)),
        (f"last act{when}", int(state.last)),
        ("trust", state.trust),
        ("need", state.need),
    ):
        values_F[_OFFSETS[name] + place] = 1.0
    used_up = [float(used >= limit) for used, limit in zip(state.used, USES.values(), strict=True)]
    values_F[_OFFSETS["used up"] : _OFFSETS["used up"] + len(USES)] = used_up
    return values_F


def weak_start() -> Floats:
    """(F, A) weights whose policy is the weak behaviour of the base policy."""
    weights_FA = np.zeros((FEATURES, len(CHOICES)))
    other, told = _log_weights(WEAK.other), _log_weights(WEAK.told)
    weights_FA[_OFFSETS["told"]], weights_FA[_OFFSETS["told"] + 1] = other, told
    weights_FA[_OFFSETS["line"] + Symbol.WARM] = _log_weights(WEAK.warm) - other
    for choice, act in enumerate(CHOICES):
        if act is not Act.SILENT:
            for block in ("last act", "last act when told"):
                weights_FA[_OFFSETS[block] + act, choice] = np.log(RARE)
    return weights_FA


def probabilities(weights_FA: Floats, features_KF: Floats) -> Floats:
    """Softmax of the choices, (F,) -> (A,) or (K, F) -> (K, A)."""
    logits_KA = features_KF @ weights_FA
    powers_KA: Floats = np.exp(logits_KA - logits_KA.max(axis=-1, keepdims=True))
    shares_KA: Floats = powers_KA / powers_KA.sum(axis=-1, keepdims=True)
    return shares_KA


def policy_gradient(
    weights_FA: Floats, features_KF: Floats, chosen_K: NDArray[np.int64], advantage_K: Floats
) -> Floats:
    """(F, A) gradient of the mean of advantage x log-probability; a turn whose advantage is NaN has no part in it."""
    known_K = ~np.isnan(advantage_K)
    if not known_K.any():
        return np.zeros_like(weights_FA)
    features, chosen, advantage = features_KF[known_K], chosen_K[known_K], advantage_K[known_K]
    direction_KA = -probabilities(weights_FA, features)
    direction_KA[np.arange(len(chosen)), chosen] += 1.0
    gradient_FA: Floats = features.T @ (direction_KA * advantage[:, None]) / len(chosen)
    return gradient_FA


def _log_weights(mixture: Mixture) -> Floats:
    total = sum(mixture.values())
    weights_A: Floats = np.log([mixture.get(act, RARE) / total for act in CHOICES])
    return weights_A
