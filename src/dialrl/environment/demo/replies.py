"""What a policy may say: several sentences for each act, with slots for the user's own words.

The base policy is taught with them and the fast tier and the planners speak them; a reply is read by its features
(``acts``), so any other wording does as well.
"""

from collections.abc import Sequence
from functools import cache

from dialrl.environment.demo.acts import Act, heard, words_of
from dialrl.environment.demo.tracker import spoken
from dialrl.scenario.message import Message

REPLIES: dict[Act, tuple[str, ...]] = {
    Act.SILENT: ("",),
    Act.VALIDATE: (
        "it makes sense that you feel {feeling} .",
        "anyone would feel {feeling} in your place .",
        "i hear how {feeling} you feel right now .",
        "being {feeling} like this must be hard .",
        "of course you feel {feeling} , that is human .",
        "feeling {feeling} is nothing to hide from me .",
    ),
    Act.PARAPHRASE: (
        "so the {topic} stays on your mind .",
        "it sounds like the {topic} changed a lot for you .",
        "the {topic} takes up all your days .",
        "if i follow you , it began with the {topic} .",
        "you mean the {topic} weighs on you .",
        "so it all comes back to the {topic} .",
    ),
    Act.AFFIRM: (
        "you are stronger than you think .",
        "it was brave to say this .",
        "i am proud of how you go on .",
        "you are a capable person .",
        "it takes courage to speak like that .",
        "you have been so strong in this .",
    ),
    Act.ADVISE: (
        "you should stop thinking about the {topic} .",
        "just try to sleep more .",
        "you should make a plan for the {topic} .",
        "try to look on the bright side .",
        "my advice is to forget the {topic} .",
        "you should not feel so {feeling} .",
    ),
    Act.ASK: (
        "what is it about the {topic} that hurts most ?",
        "can you tell me more about the {topic} ?",
        "what lies behind feeling so {feeling} ?",
        "when did you begin to feel {feeling} ?",
        "who else is part of the {topic} ?",
        "what makes the {topic} so heavy ?",
    ),
    Act.RESONATE: (
        "so under all of it is your {detail} .",
        "i feel how much your {detail} means to you .",
        "it was never the {topic} , it was your {detail} .",
        "no wonder you feel {feeling} about your {detail} .",
        "you carried this about your {detail} alone .",
        "your {detail} is at the heart of it .",
    ),
    Act.EMPOWER: (
        "you are strong enough to face your {detail} .",
        "try one small step with your {detail} .",
        "it is brave to speak of your {detail} .",
        "you are capable of peace with your {detail} .",
        "you should be proud of how you see your {detail} .",
        "with courage you can live with your {detail} .",
    ),
    Act.GENERIC: (
        "i see .",
        "okay , go on .",
        "everyone has days like this .",
        "time heals everything .",
        "that is life .",
        "things will work out somehow .",
        "it could be worse .",
        "the weather is nice today .",
    ),
}


def reply_texts(act: Act, topic: str, feeling: str, detail: str) -> tuple[str, ...]:
    """Every shipped sentence of an act, its slots filled. REPEAT and GARBLED have none."""
    return tuple(text.format(topic=topic, feeling=feeling, detail=detail) for text in REPLIES.get(act, ()))


def slots_of(transcript: Sequence[Message]) -> dict[str, str]:
    """The user's own words by kind ("" where the user has not named one), read from the transcript."""
    return {kind: next(iter(sorted(words)), "") for kind, words in heard(transcript).items()}


def speak(act: Act, transcript: Sequence[Message], draw: float) -> str:
    """A sentence of ``act`` that was not said yet in this dialogue (any, when all were); ``draw`` in [0, 1) picks it."""
    slots = slots_of(transcript)
    texts = reply_texts(act, slots["topic"], slots["feeling"], slots["detail"])
    said = {tuple(words_of(line.content)) for line in spoken(transcript) if line.role == "assistant"}
    fresh = [text for text in texts if tuple(words_of(text)) not in said] or list(texts)
    return fresh[int(draw * len(fresh))]


@cache
def reply_words() -> frozenset[str]:
    """Every token of the shipped sentences, slots left out."""
    return frozenset(
        token for texts in REPLIES.values() for text in texts for token in text.split() if not token.startswith("{")
    )
