"""SAGE's stored conversations, and the rules by which the simulated user's emotion moves, checked turn by turn.

The simulator writes a signed change before each later line; the emotion is the sum, each change held within 10 and the
sum below 100. Source: Zhang et al. 2025 (arXiv 2505.02847); RLVER's variant: arXiv 2507.03112. Not here: scores.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dialrl.environment.sage.rules import FAILURE, SUCCESS, EmotionRules
from dialrl.evaluate.stored import Stored, read_lines

BANDS = (("S", SUCCESS), ("A", 70.0), ("B", 40.0), ("C", FAILURE))  # F below
WHAT = "SAGE conversations, one JSON object a line"


@dataclass(frozen=True)
class Conversation:
    """One conversation; ``emotion_K`` after each user line; ``faults`` say where it breaks the rules."""

    key: str
    line: int
    final: float
    emotion_K: tuple[float, ...]
    replies: int
    ending: str
    faults: tuple[str, ...]
    arithmetic_faults: int
    text: str  # as it was stored, JSON


def band(emotion: float) -> str:
    """S from 100, A from 70, B from 40, C from 10, else F."""
    return next((name for name, least in BANDS if emotion >= least), "F")


def load_conversations(path: Path, rules: EmotionRules) -> list[Conversation]:
    """All conversations of a file. Raises InputError naming file, line and field."""
    return read_conversations(read_lines(path, WHAT), rules)


def read_conversations(lines_of_file: Iterable[Stored], rules: EmotionRules) -> list[Conversation]:
    """The conversations in ``lines_of_file``. Raises InputError naming file, line and field."""
    lines: dict[str, int] = {}
    found = []
    for stored in lines_of_file:
        conversation = _conversation(stored, rules)
        if conversation.key in lines:
            raise stored.fault(("id",), f"got '{conversation.key}', which stands on line {lines[conversation.key]} too")
        lines[conversation.key] = stored.first_line
        found.append(conversation)
    return found


def load_profile_ids(path: Path) -> list[str]:
    """The ids of the simulator's profiles. Raises InputError naming file, line and field."""
    lines: dict[str, int] = {}
    for stored in read_lines(path, "SAGE profiles, one JSON object a line"):
        key = stored.name("id")
        for field in ("player", "scene", "task", "first_talk"):
            stored.string(field)
        if key in lines:
            raise stored.fault(("id",), f"got '{key}', which stands on line {lines[key]} too")
        lines[key] = stored.first_line
    return list(lines)


def _conversation(stored: Stored, rules: EmotionRules) -> Conversation:
    lines = list(_user_lines(stored))
    if not lines:
        raise stored.fault(("history",), "holds no line of the user")
    emotions = tuple(stored.number("history", place, "emotion-point") for place in lines)
    arithmetic = list(_arithmetic_faults(stored, lines, emotions, rules))
    final = stored.number("emo_point")
    return Conversation(
        key=stored.name("id"),
        line=stored.first_line,
        final=final,
        emotion_K=emotions,
        replies=len(stored.sequence("history")) - len(lines),
        ending=stored.string("ending") if stored.has("ending") else _ending(final, len(lines), rules),
        faults=(*arithmetic, *_other_faults(stored, emotions, final, rules)),
        arithmetic_faults=len(arithmetic),
        text=stored.text,
    )


def _user_lines(stored: Stored) -> Iterator[int]:
    """Places of the user's lines; every line has a role that is known and a text."""
    for place in range(len(stored.sequence("history"))):
        role = stored.string("history", place, "role")
        stored.string("history", place, "content")
        if role not in ("user", "assistant"):
            raise stored.fault(("history", place, "role"), f"got '{role}'; expected user or assistant")
        if role == "user":
            yield place


def _arithmetic_faults(
    stored: Stored, lines: Sequence[int], emotions: Sequence[float], rules: EmotionRules
) -> Iterator[str]:
    if emotions[0] != rules.start:
        yield f"{_where(stored, lines[0])} is {emotions[0]:g}; an emotion starts at {rules.start:g}"
    for turn in range(1, len(lines)):
        change = stored.number("history", lines[turn], "planning", "change")
        expected = rules.after(emotions[turn - 1], change)
        if emotions[turn] != expected:
            sum_text = f"{emotions[turn - 1]:g} and a change of {change:g} make {expected:g}"
            yield f"{_where(stored, lines[turn])} is {emotions[turn]:g}; {sum_text}"


def _other_faults(stored: Stored, emotions: Sequence[float], final: float, rules: EmotionRules) -> Iterator[str]:
    where = f"line {stored.first_line}"
    if final != emotions[-1]:
        yield f"{where}: emo_point is {final:g}, the last emotion {emotions[-1]:g}"
    if stored.has("emo_state") and stored.string("emo_state").rpartition("-")[2] != band(final):
        yield f"{where}: emo_state is {stored.string('emo_state')}; {final:g} is in band {band(final)}"
    if len(emotions) > rules.most_turns:
        yield f"{where}: {len(emotions)} lines of the user; at most {rules.most_turns} are played"
    if any(rules.is_over(emotion) for emotion in emotions[:-1]):
        yield f"{where}: the conversation goes on after its emotion ended it"


def _where(stored: Stored, place: int) -> str:
    return f"line {stored.first_line}, history[{place}]: emotion-point"


def _ending(final: float, user_turns: int, rules: EmotionRules) -> str:
    if final >= SUCCESS:
        return "success"
    if final < FAILURE:
        return "failure"
    return "turn_limit" if user_turns >= rules.most_turns else "farewell"
