"""Reads a transcript back into the world's terms: acts, symbols, states. Text in, nothing hidden needed.

The judge grades from this, and the planners speak through it. Not here: what may happen next (``rules``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.environment.demo.acts import Act, Heard, features_after
from dialrl.environment.demo.lines import Symbol, opening_cues, symbol_of
from dialrl.environment.demo.rules import State, advance, grade, is_answered, with_mood
from dialrl.errors import InputError
from dialrl.scenario.message import Message


@dataclass(frozen=True)
class TrackedTurn:
    """One reply: the state it met, what it did, and what the user's next line meant (None: not spoken yet)."""

    state: State
    act: Act
    symbol: Symbol | None


@dataclass(frozen=True)
class Track:
    """A transcript so far: how the opening sounded, the turns, and the state that the next reply meets."""

    sounds_guarded: bool
    turns: tuple[TrackedTurn, ...]
    state: State


def spoken(transcript: Sequence[Message]) -> list[Message]:
    """The lines of user and assistant; system messages say nothing in this world."""
    return [message for message in transcript if message.role in ("user", "assistant")]


def track(transcript: Sequence[Message], extra_trust: int = 0) -> Track:
    """The states of a dialogue, from its text alone; ``extra_trust`` is that of the world (``rules.State``).

    Raises InputError when the lines do not alternate, or the first is no opening of this world.
    """
    lines = spoken(transcript)
    cues = opening_cues(lines[0].content) if lines and lines[0].role == "user" else None
    if cues is None:
        first = lines[0].content[:80] if lines else "an empty transcript"
        raise InputError(f"A demo dialogue begins with one of the demo user's opening lines, got: {first!r}.")
    for place, line in enumerate(lines):
        if line.role != ("user", "assistant")[place % 2]:
            raise InputError(f"A demo dialogue alternates user and assistant; line {place} is by '{line.role}'.")
    state, turns, heard = State(cues[0], extra_trust=extra_trust), [], Heard.of(lines[:1])
    for place in range(1, len(lines), 2):
        act = features_after(lines[place].content, heard).act
        heard.add(lines[place])
        symbol = symbol_of(lines[place + 1].content) if place + 1 < len(lines) else None
        turns.append(TrackedTurn(state, act, symbol))
        if symbol is not None:
            heard.add(lines[place + 1])
            state = _state_after(state, act, symbol)
    return Track(cues[1], tuple(turns), state)


def _state_after(state: State, act: Act, symbol: Symbol) -> State:
    """The user's answer shows whether a question was answered, and so which levels it had."""
    answered = symbol is Symbol.REVEAL
    guarded = next((bit for bit in (False, True) if is_answered(state, bit, act) == answered), False)
    return with_mood(advance(state, act, grade(state, guarded, act), answered), symbol)
