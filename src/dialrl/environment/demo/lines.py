"""What the scripted user says: several fixed sentences for each *symbol* (what a line means), and the way back.

A symbol is all that a line shows about the user's state; which of its sentences is spoken carries nothing.
``symbol_of`` reads the symbol back out of the text, so that a judge or a planner needs only the transcript.
Not here: when a symbol is spoken (see ``rules``).
"""

import re
from enum import IntEnum
from functools import lru_cache

from dialrl.environment.demo.words import SLOT_WORDS


class Symbol(IntEnum):
    """The meaning of one user line."""

    OPENING = 0
    COOL = 1  # does not sound ready to tell more (noisy)
    WARM = 2  # sounds ready to tell more (noisy)
    RAW = 3  # a bad moment: cannot take a question, a paraphrase or encouragement now
    REFUSED = 4  # was asked and did not want to say
    HURT = 5  # the last reply missed or hurt
    REVEAL = 6  # tells the core detail
    EASED = 7  # steady, after the detail is told
    FAREWELL = 8  # every need is met


OPENINGS = (
    (  # need C: to be understood
        "Nobody understands why the {topic} makes me feel {feeling}.",
        "I can not explain why I feel {feeling} about the {topic}.",
    ),
    (  # need A: to have the feeling shared
        "I just feel so {feeling} because of the {topic}.",
        "Since the {topic} I feel {feeling} all the time.",
    ),
    (  # need P: to feel able to act
        "The {topic} leaves me {feeling} and I do nothing right.",
        "I feel {feeling} and too weak for the {topic}.",
    ),
)
OPENING_TAILS = (
    ("It is good to talk.", "I am glad you are here."),  # sounds open
    ("I rarely talk about it.", "I do not say much."),  # sounds guarded
)
LINES: dict[Symbol, tuple[str, ...]] = {
    Symbol.COOL: ("Maybe. I am not sure.", "Hm. It is what it is.", "Perhaps. I do not know yet."),
    Symbol.WARM: ("Yes, that is how it is.", "Thank you, you listen well.", "It feels safe to talk with you."),
    Symbol.RAW: (
        "Sorry, it is too much today.",
        "I can not think, it all aches.",
        "Please, not now, I have to cry.",
    ),
    Symbol.REFUSED: ("I would rather not say.", "That is not for today.", "I do not want to go there."),
    Symbol.HURT: ("That does not help me.", "You do not get it.", "That is not what I need."),
    Symbol.REVEAL: (
        "Honestly it is all about my {detail}.",
        "I never told anyone, it is my {detail}.",
        "The truth is that my {detail} is behind it.",
    ),
    Symbol.EASED: ("It is a relief to say it.", "I have never said that aloud.", "It feels lighter now."),
    Symbol.FAREWELL: ("I feel ready now. Goodbye.", "That was all I needed. Goodbye."),
}
OPENING_COUNT = len(OPENINGS[0]) * len(OPENING_TAILS[0])

_WORD = re.compile(r"[a-z]+")


def opening_line(need: int, sounds_guarded: bool, variant: int, topic: str, feeling: str) -> str:
    """The first line of a dialogue; ``variant`` in 0..OPENING_COUNT-1 picks the wording."""
    heads, tails = OPENINGS[need], OPENING_TAILS[int(sounds_guarded)]
    head = heads[variant % len(heads)].format(topic=topic, feeling=feeling)
    return f"{head} {tails[variant // len(heads) % len(tails)]}"


def user_line(symbol: Symbol, draw: float, detail: str) -> str:
    """One sentence of ``symbol``; ``draw`` in [0, 1) picks it."""
    choices = LINES[symbol]
    return choices[int(draw * len(choices))].format(detail=detail)


def _skeleton(line: str) -> str:
    """The line with every slot word replaced by its kind, which is how templates are recognised."""
    words = []
    for word in _WORD.findall(line.lower()):
        kind = next((kind for kind, known in SLOT_WORDS.items() if word in known), None)
        words.append(f"<{kind}>" if kind else word)
    return " ".join(words)


def _template_skeleton(template: str) -> str:
    return " ".join(re.findall(r"<\w+>|[a-z]+", template.lower().replace("{", "<").replace("}", ">")))


_SYMBOLS = {_template_skeleton(line): symbol for symbol, lines in LINES.items() for line in lines}
_OPENINGS = {
    _template_skeleton(f"{head} {tail}"): (need, guarded)
    for need, heads in enumerate(OPENINGS)
    for head in heads
    for guarded, tails in enumerate(OPENING_TAILS)
    for tail in tails
}


@lru_cache(maxsize=8192)
def symbol_of(line: str) -> Symbol:
    """What a user line means; a line that this world does not speak reads as COOL."""
    skeleton = _skeleton(line[:200])
    return Symbol.OPENING if skeleton in _OPENINGS else _SYMBOLS.get(skeleton, Symbol.COOL)


def opening_cues(line: str) -> tuple[int, bool] | None:
    """(need, sounds guarded) of an opening line; None where the line is no opening of this world."""
    cues = _OPENINGS.get(_skeleton(line[:200]))
    return None if cues is None else (cues[0], bool(cues[1]))
