"""The demo world's dynamics and grades: one finite, partly hidden Markov decision process.

``grade`` says what a reply is worth, ``advance`` what it does to the state, ``next_symbols`` what the user may say
next. The hidden part is one bit (``guarded``, which sets how much trust a question needs); the rest of the state
follows from the dialogue's text. Not here: text (``acts``, ``lines``), randomness (``world``), planning (``planner``).
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.lines import Symbol

TURN_LIMIT = 8
RAW_PROBABILITY = 0.15
CUE_NOISE = 0.2
TRUST_NEEDED = (1, 2)  # open, guarded
TRUST_LIMIT = 3
USES = MappingProxyType({Act.VALIDATE: 2, Act.PARAPHRASE: 2, Act.AFFIRM: 2, Act.RESONATE: 3, Act.EMPOWER: 3})
AFTER_TELLING = (Act.RESONATE, Act.EMPOWER)

# The nine deficit levels (C.1-3, A.1-3, P.1-3) of each need; with the units of the state model P_0 has -12 on its own
# axis and -7 on the two others.
DEFICIT_LEVELS = (
    (1, 2, 2, 0, 1, 1, 0, 1, 1),
    (1, 1, 1, 1, 1, 2, 0, 1, 1),
    (1, 1, 1, 0, 1, 1, 1, 1, 2),
)
DEFICIT_UNITS = (-2, -2, -3, -2, -4, -3, -2, -4, -3)


class Levels(NamedTuple):
    """The six graded indicators of one reply."""

    c_prog: int = 0
    c_neg: int = 0
    a_prog: int = 0
    a_neg: int = 0
    p_prog: int = 0
    p_neg: int = 0

    @property
    def increment(self) -> tuple[int, int, int]:
        """v = score of Prog + score of Neg on each axis (EMPA's table)."""
        return (
            _PROG[self.c_prog] + _C_NEG[self.c_neg],
            _PROG[self.a_prog] + _AP_NEG[self.a_neg],
            _PROG[self.p_prog] + _AP_NEG[self.p_neg],
        )


_PROG: Mapping[int, int] = {0: 0, 1: 1, 2: 3}
_C_NEG: Mapping[int, int] = {0: 0, -1: -2, -2: -4}
_AP_NEG: Mapping[int, int] = {0: 0, -1: -2, -2: -5}


class State(NamedTuple):
    """What a dialogue has come to, before a reply. All of it can be read from the transcript."""

    need: int
    gained: tuple[int, int, int] = (0, 0, 0)
    used: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)  # in the order of USES
    trust: int = 0
    last: Act = Act.SILENT
    revealed: bool = False
    raw: bool = False
    extra_trust: int = 0  # beyond TRUST_NEEDED before a question is answered: the laboratory's delay of the payoff

    @property
    def position(self) -> tuple[int, int, int]:
        """P = P_0 + what was gained."""
        start = initial_deficit(self.need)
        return (start[0] + self.gained[0], start[1] + self.gained[1], start[2] + self.gained[2])

    @property
    def distance(self) -> float:
        """Zone distance d(P) with e = 1."""
        return _distance(self.need, self.gained)


@cache
def _distance(need: int, gained: tuple[int, int, int]) -> float:
    return zone_distance(State(need, gained).position)


@cache
def initial_deficit(need: int) -> tuple[int, int, int]:
    """P_0 of a need: the sums of level x unit.

    >>> initial_deficit(0)
    (-12, -7, -7)
    """
    scores = [level * unit for level, unit in zip(DEFICIT_LEVELS[need], DEFICIT_UNITS, strict=True)]
    return (sum(scores[0:3]), sum(scores[3:6]), sum(scores[6:9]))


def zone_distance(position: tuple[int, int, int]) -> float:
    """sqrt(sum max(0, -1 - P_k)^2).

    >>> round(zone_distance((-12, -7, -7)), 4)
    13.8924
    """
    return float(sum(max(0, -1 - coordinate) ** 2 for coordinate in position) ** 0.5)


_USE_INDEX = {act: index for index, act in enumerate(USES)}


def _has_use(state: State, act: Act) -> bool:
    return state.used[_USE_INDEX[act]] < USES[act]


def is_answered(state: State, guarded: bool, act: Act) -> bool:
    """Does ``act`` make the user tell the detail? A question does, once, in a steady moment, with trust enough."""
    ready = not state.revealed and not state.raw and _has_trust(state, guarded)
    return ready and act is Act.ASK and state.last is not Act.ASK


def _has_trust(state: State, guarded: bool) -> bool:
    return state.trust >= TRUST_NEEDED[guarded] + state.extra_trust


def grade(state: State, guarded: bool, act: Act) -> Levels:
    """The judge's six levels for ``act`` in ``state`` (the table of the package docstring)."""
    if act in _FIXED:
        return _FIXED[act]
    if act in AFTER_TELLING and not state.revealed:
        return _FIXED[Act.GARBLED]  # no text gets here: naming an untold detail already reads as GARBLED
    if act == state.last:
        return Levels(a_neg=-1)
    if act is Act.ASK:
        return Levels() if state.revealed or is_answered(state, guarded, act) else Levels(a_neg=-1)
    if act is Act.ADVISE:
        if not state.revealed:
            return Levels(c_neg=-1, p_neg=-1)
        return Levels(p_neg=-1) if state.raw else Levels(p_prog=1)
    return _grade_used(state, act)


_FIXED = {
    Act.SILENT: Levels(),
    Act.GENERIC: Levels(c_neg=-1),
    Act.REPEAT: Levels(a_neg=-1),
    Act.GARBLED: Levels(c_neg=-2, a_neg=-1),
}


def _grade_used(state: State, act: Act) -> Levels:
    """Acts that help a limited number of times: VALIDATE, PARAPHRASE, AFFIRM, RESONATE, EMPOWER."""
    if act in (Act.AFFIRM, Act.EMPOWER) and (state.raw or not _has_use(state, act)):
        return Levels(p_neg=-1)
    if not _has_use(state, act) or (act is Act.PARAPHRASE and state.raw):
        return Levels()
    if act is Act.RESONATE:
        return Levels(c_prog=2, a_prog=2)
    if act is Act.EMPOWER:
        return Levels(p_prog=2)
    return {Act.VALIDATE: Levels(a_prog=1), Act.PARAPHRASE: Levels(c_prog=1), Act.AFFIRM: Levels(p_prog=1)}[act]


def advance(state: State, act: Act, levels: Levels, answered: bool) -> State:
    """The state after ``act`` was graded ``levels``; ``answered``: the user told the detail. Mood comes later."""
    gain = levels.increment
    gained = (state.gained[0] + gain[0], state.gained[1] + gain[1], state.gained[2] + gain[2])
    if act in _FIXED:
        return state._replace(gained=gained, last=Act.SILENT)
    helped = levels.c_prog + levels.a_prog + levels.p_prog > 0
    used = state.used
    if helped and act in _USE_INDEX:
        index = _USE_INDEX[act]
        used = (*used[:index], used[index] + 1, *used[index + 1 :])  # type: ignore[assignment]
    return state._replace(
        gained=gained,
        used=used,
        trust=_next_trust(state, act, levels, helped, answered),
        last=act,
        revealed=state.revealed or answered,
    )


def _next_trust(state: State, act: Act, levels: Levels, helped: bool, answered: bool) -> int:
    """Trust rises with what helps and falls with a question that comes too early; with the detail told it is full."""
    if state.revealed or answered:
        return TRUST_LIMIT
    if helped:
        return min(state.trust + 1, TRUST_LIMIT)
    refused = act is Act.ASK and state.last is not Act.ASK and levels.a_neg < 0
    return max(state.trust - 1, 0) if refused else state.trust


def next_symbols(state: State, levels: Levels, act: Act, answered: bool, guarded: bool) -> dict[Symbol, float]:
    """Probabilities of what the user's next line means, ``state`` being the state after ``advance``."""
    if state.distance == 0:
        return {Symbol.FAREWELL: 1.0}
    if answered:
        return {Symbol.REVEAL: 1.0}
    steady = 1.0 - RAW_PROBABILITY
    if min(levels) < 0:
        return {Symbol.RAW: RAW_PROBABILITY, Symbol.REFUSED if act is Act.ASK else Symbol.HURT: steady}
    if state.revealed:
        return {Symbol.RAW: RAW_PROBABILITY, Symbol.EASED: steady}
    warm = 1.0 - CUE_NOISE if _has_trust(state, guarded) else CUE_NOISE
    return {Symbol.RAW: RAW_PROBABILITY, Symbol.WARM: steady * warm, Symbol.COOL: steady * (1.0 - warm)}


def with_mood(state: State, symbol: Symbol) -> State:
    """The state once the user has spoken ``symbol``."""
    return state._replace(raw=symbol is Symbol.RAW)
