"""How a reply is read: its finite feature vector, and the one *act* that follows from it.

User, judge and planner see a reply through ``features`` alone: two texts with the same vector are the same reply.
Nothing here knows the hidden state; all of it is read from the transcript's text.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from dialrl.environment.demo.words import ADVICE_WORDS, AFFIRMING_WORDS, SLOT_WORDS
from dialrl.scenario.message import Message

WORD_LIMIT = 30
CHARACTER_LIMIT = 240

_WORD = re.compile(r"[^\W\d_]+")


class Act(IntEnum):
    """What a reply does. The order breaks the myopic planner's ties (the earlier act wins)."""

    SILENT = 0
    VALIDATE = 1  # names the feeling
    PARAPHRASE = 2  # names the topic
    AFFIRM = 3  # encourages
    ADVISE = 4  # gives advice
    ASK = 5  # asks about something the user said
    RESONATE = 6  # names the told detail
    EMPOWER = 7  # names the told detail, with encouragement or advice
    GENERIC = 8  # says nothing that belongs to this user
    REPEAT = 9  # an earlier reply, word for word
    GARBLED = 10  # too long, stuttering, or names what the user never said


@dataclass(frozen=True)
class ReplyFeatures:
    """All that this world reads in a reply.

    ``off_topic``: names a feeling, topic or detail that the user has not said. ``garbled``: over WORD_LIMIT words or
    CHARACTER_LIMIT characters, a word twice in a row, or a word more than three times.
    """

    empty: bool
    garbled: bool
    off_topic: bool
    repeats_earlier: bool
    names_feeling: bool
    names_topic: bool
    names_detail: bool
    asks: bool
    advises: bool
    affirms: bool

    @property
    def act(self) -> Act:
        """The act, by precedence: the first line that applies."""
        if self.empty:
            return Act.SILENT
        if self.garbled or self.off_topic:
            return Act.GARBLED
        if self.repeats_earlier:
            return Act.REPEAT
        if self.asks:
            return Act.ASK if self.names_topic or self.names_feeling or self.names_detail else Act.GENERIC
        if self.names_detail:
            return Act.EMPOWER if self.advises or self.affirms else Act.RESONATE
        if self.advises:
            return Act.ADVISE
        if self.affirms:
            return Act.AFFIRM
        if self.names_feeling:
            return Act.VALIDATE
        return Act.PARAPHRASE if self.names_topic else Act.GENERIC


def words_of(text: str) -> tuple[str, ...]:
    """Lower-cased words of the part of a text that can matter (one character past CHARACTER_LIMIT is enough)."""
    return _words(text[: CHARACTER_LIMIT + 1])


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


@dataclass
class Heard:
    """What a dialogue has brought up so far, line by line: the slot words of the user, and earlier replies."""

    slot_words: dict[str, frozenset[str]] = field(default_factory=lambda: dict.fromkeys(SLOT_WORDS, frozenset()))
    replies: set[tuple[str, ...]] = field(default_factory=set)

    def add(self, line: Message) -> None:
        """Take the next line."""
        words = words_of(line.content)
        if line.role == "user":
            spoken = frozenset(words)
            self.slot_words = {kind: said | (SLOT_WORDS[kind] & spoken) for kind, said in self.slot_words.items()}
        elif line.role == "assistant":
            self.replies.add(words)

    @classmethod
    def of(cls, transcript: Sequence[Message]) -> "Heard":
        """All of a transcript."""
        heard = cls()
        for line in transcript:
            heard.add(line)
        return heard


def features(reply: str, transcript: Sequence[Message]) -> ReplyFeatures:
    """The feature vector of ``reply`` as an answer to ``transcript``, which ends with the user's line.

    Any text is legal: empty, huge, markup, any script.

    >>> features("so the exam is hard ?", [Message("user", "i feel sad since the exam .")]).act
    <Act.ASK: 5>
    """
    return features_after(reply, Heard.of(transcript))


def features_after(reply: str, heard: Heard) -> ReplyFeatures:
    """``features`` where the transcript was followed line by line."""
    words = words_of(reply)
    spoken, known = frozenset(words), heard.slot_words
    return ReplyFeatures(
        empty=not words and not reply.strip(),
        garbled=_is_garbled(reply, words),
        off_topic=any(spoken & (SLOT_WORDS[kind] - known[kind]) for kind in SLOT_WORDS),
        repeats_earlier=words in heard.replies,
        names_feeling=bool(spoken & known["feeling"]),
        names_topic=bool(spoken & known["topic"]),
        names_detail=bool(spoken & known["detail"]),
        asks="?" in reply[:CHARACTER_LIMIT],
        advises=bool(spoken & ADVICE_WORDS),
        affirms=bool(spoken & AFFIRMING_WORDS),
    )


def _is_garbled(reply: str, words: Sequence[str]) -> bool:
    stutters = any(first == second for first, second in itertools.pairwise(words))
    most = max(Counter(words).values(), default=0)
    return len(reply) > CHARACTER_LIMIT or len(words) > WORD_LIMIT or stutters or most > 3
