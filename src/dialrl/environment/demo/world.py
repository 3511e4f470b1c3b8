"""The scripted user: opens a dialogue and answers replies, text in and text out.

A user is a pure function of (scenario, seed, replies so far): draws come from a hash of those, so a dialogue can be
replayed from its replies. Not here: the rules (``rules``), grades (``dialrl.judge.demo``), the async adapter.
"""

import hashlib
from dataclasses import dataclass

from dialrl.environment.demo.acts import Act, features
from dialrl.environment.demo.lines import Symbol, user_line
from dialrl.environment.demo.rules import TURN_LIMIT, State, advance, grade, is_answered, next_symbols, with_mood
from dialrl.environment.demo.scenario import DemoScenario
from dialrl.errors import InputError
from dialrl.scenario.message import Message


@dataclass(frozen=True)
class UserStep:
    """The user's answer; ``end_reason`` ("success" or "turn_limit") when it is the last line."""

    text: str
    end_reason: str | None
    act: Act
    symbol: Symbol


class DemoUser:
    """One dialogue with the user of a scenario. ``seed`` decides moods, cues and wording after the opening line.

    ``turn_limit`` and ``extra_trust`` (beyond the usual before a question is answered) make other worlds of it.
    """

    def __init__(self, scenario: DemoScenario, seed: int, turn_limit: int = TURN_LIMIT, extra_trust: int = 0) -> None:
        self.scenario = scenario
        self.seed = seed
        self.turn_limit = turn_limit
        self.transcript: list[Message] = [Message("user", scenario.opening)]
        self.state = State(scenario.need, extra_trust=extra_trust)
        self.turn = 0
        self.end_reason: str | None = None

    def opening(self) -> str:
        """The first line: the same for every seed."""
        return self.scenario.opening

    def respond(self, reply: str) -> UserStep:
        """The answer to one reply, which may be any text.

        Raises InputError when the dialogue is over.
        """
        if self.end_reason is not None:
            raise InputError(
                f"The dialogue {self.scenario.scenario_id} ended with '{self.end_reason}' after {self.turn} turns and"
                " takes no further reply; start a new DemoUser."
            )
        act = features(reply, self.transcript).act
        symbol = self._react(act)
        text = user_line(symbol, self._draw("wording"), self.scenario.detail)
        self.transcript += [Message("assistant", reply), Message("user", text)]
        self.turn += 1
        self.end_reason = self._reason_to_end(symbol)
        return UserStep(text, self.end_reason, act, symbol)

    def _react(self, act: Act) -> Symbol:
        guarded = self.scenario.guarded
        levels = grade(self.state, guarded, act)
        answered = is_answered(self.state, guarded, act)
        after = advance(self.state, act, levels, answered)
        symbol = _pick(next_symbols(after, levels, act, answered, guarded), self._draw("symbol"))
        self.state = with_mood(after, symbol)
        return symbol

    def _reason_to_end(self, symbol: Symbol) -> str | None:
        if symbol is Symbol.FAREWELL:
            return "success"
        return "turn_limit" if self.turn >= self.turn_limit else None

    def _draw(self, what: str) -> float:
        return draw_of(self.scenario.scenario_id, self.seed, self.turn, what)


def draw_of(scenario_id: str, seed: int, turn: int, what: str) -> float:
    """The user's number in [0, 1) for ``what`` ("symbol" or "wording") at this scenario, seed and turn."""
    key = f"{scenario_id}|{seed}|{turn}|{what}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2.0**64


def _pick(probabilities: dict[Symbol, float], draw: float) -> Symbol:
    total = 0.0
    for symbol, probability in probabilities.items():
        total += probability
        if draw < total:
            return symbol
    return symbol
