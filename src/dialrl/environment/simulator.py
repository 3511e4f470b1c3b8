"""How a simulated user's text enters a dialogue: its own view, its end marker, and what is odd about a line.

A simulator (a language model that plays the user) sees the dialogue from its own side: what it said is "assistant" to
it, the policy's replies are "user", and its own opening line comes first, so that it never answers itself. It ends a
dialogue by a marker in *its* text; the marker is cut off and never looked for in the policy's. A line that repeats the
one before, or that speaks as the helper, is kept, flagged and counted (field case 25). Not here: asking a model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dialrl.scenario.message import Message

END_MARKER = "###END###"
REPETITION, ROLE_FLIP, EMPTY_LINE = "user_repetition", "role_flip", "user_empty"

# What a helper says and a person in need does not, in the languages of the shipped cards; in any case.
_HELPER_PHRASES = (
    r"how can i (help|assist|support) you",
    r"i(?:'m| am) (here|happy|glad) to (help|assist|support|listen)",
    r"as an ai\b",
    r"as a (language model|(?:virtual |ai )?assistant)\b",
    r"is there anything else i can (help|assist|do)",
    r"thank you for (sharing|opening up|trusting me)",
    r"(무엇을|어떻게)\s*도와\s*드릴",
    r"(저는|제가)\s*(ai|인공지능|언어\s*모델)",
    r"(ai|인공지능|언어\s*모델)(으)?로서",
    r"(나눠|말씀해|털어놓아)\s*주셔서\s*(정말\s*)?감사",
    r"(有什么|怎么|如何)(可以|能|才能)?(帮助?|帮到)(你|您)",
    r"作为(一个|一名)?\s*(ai|人工智能|语言模型|助手)",
    r"我是(一个|一名)?\s*(ai|人工智能|语言模型)",
    r"(谢谢|感谢)(你|您)(愿意)?(的)?(分享|信任)",
)
_HELPER = re.compile("|".join(_HELPER_PHRASES), re.IGNORECASE)


@dataclass(frozen=True)
class SimulatorLine:
    """A line as it goes into the dialogue. ``ended``: the simulator closed the dialogue with it."""

    text: str
    ended: bool
    flags: tuple[str, ...] = ()


def simulator_view(dialogue: Sequence[Message]) -> list[Message]:
    """The dialogue as the simulator sees it: roles exchanged, the policy's system prompt left out.

    Example: user "I feel low.", assistant "Since when?" becomes assistant "I feel low.", user "Since when?".
    """
    exchanged = {"user": "assistant", "assistant": "user"}
    return [
        Message("assistant" if exchanged[message.role] == "assistant" else "user", message.content, message.name)
        for message in dialogue
        if message.role in exchanged
    ]


def read_line(raw: str, dialogue: Sequence[Message], *, end_marker: str = END_MARKER) -> SimulatorLine:
    """A simulator's raw text as the next user line of ``dialogue``.

    Example: "Thanks, bye. ###END###" gives "Thanks, bye." and ends the dialogue.
    """
    before, marker, _ = raw.partition(end_marker)
    text = before.rstrip() if marker else raw
    return SimulatorLine(text, bool(marker), tuple(_oddities(text, dialogue, ended=bool(marker))))


def line_flags(text: str, dialogue: Sequence[Message]) -> tuple[str, ...]:
    """What is odd about a user line that follows ``dialogue``: repetition, role flip, nothing said."""
    return tuple(_oddities(text, dialogue, ended=False))


def _oddities(text: str, dialogue: Sequence[Message], *, ended: bool) -> list[str]:
    last = next((message.content for message in reversed(dialogue) if message.role == "user"), None)
    flags = []
    if not text.strip() and not ended:
        flags.append(EMPTY_LINE)
    elif last is not None and _plain(text) == _plain(last):
        flags.append(REPETITION)
    if _HELPER.search(text):
        flags.append(ROLE_FLIP)
    return flags


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
