"""What a policy may say: several sentences for each act, with slots for the user's own words.

The base policy is taught with them and the fast tier and the planners speak them; a reply is read by its features
(``acts``), so any other wording does as well.
"""

from collections.abc import Sequence

from dialrl.environment.demo.acts import Act, Heard, words_of
from dialrl.environment.demo.tracker import spoken
from dialrl.scenario.message import Message

REPLIES: dict[Act, tuple[str, ...]] = {
    Act.SILENT: ("",),
    Act.VALIDATE: (
        "It makes sense that you feel {feeling}.",
        "Anyone would feel {feeling} in your place.",
        "I hear how {feeling} you feel right now.",
        "Being {feeling} like this must be hard.",
        "Of course you feel {feeling}, that is human.",
        "Feeling {feeling} is nothing to hide from me.",
    ),
    Act.PARAPHRASE: (
        "So the {topic} stays on your mind.",
        "It sounds like the {topic} changed a lot for you.",
        "The {topic} takes up all your days.",
        "If I follow you, it began with the {topic}.",
        "You mean the {topic} weighs on you.",
        "So it all comes back to the {topic}.",
    ),
    Act.AFFIRM: (
        "You are stronger than you think.",
        "It was brave to say this.",
        "I am proud of how you go on.",
        "You are a capable person.",
        "It takes courage to speak like that.",
        "You have been so strong in this.",
    ),
    Act.ADVISE: (
        "You should stop thinking about the {topic}.",
        "Just try to sleep more.",
        "You should make a plan for the {topic}.",
        "Try to look on the bright side.",
        "My advice is to forget the {topic}.",
        "You should not feel so {feeling}.",
    ),
    Act.ASK: (
        "What is it about the {topic} that hurts most?",
        "Can you tell me more about the {topic}?",
        "What lies behind feeling so {feeling}?",
        "When did you begin to feel {feeling}?",
        "Who else is part of the {topic}?",
        "What makes the {topic} so heavy?",
    ),
    Act.RESONATE: (
        "So under all of it is your {detail}.",
        "I feel how much your {detail} means to you.",
        "It was never the {topic}, it was your {detail}.",
        "No wonder you feel {feeling} about your {detail}.",
        "You carried this about your {detail} alone.",
        "Your {detail} is at the heart of it.",
    ),
    Act.EMPOWER: (
        "You are strong enough to face your {detail}.",
        "Try one small step with your {detail}.",
        "It is brave to speak of your {detail}.",
        "You are capable of peace with your {detail}.",
        "You should be proud of how you see your {detail}.",
        "With courage you can live with your {detail}.",
    ),
    Act.GENERIC: (
        "I see.",
        "Okay, go on.",
        "Everyone has days like this.",
        "Time heals everything.",
        "That is life.",
        "Things will work out somehow.",
        "It could be worse.",
        "The weather is nice today.",
    ),
}


def reply_texts(act: Act, topic: str, feeling: str, detail: str) -> tuple[str, ...]:
    """Every shipped sentence of an act, its slots filled. REPEAT and GARBLED have none."""
    return tuple(text.format(topic=topic, feeling=feeling, detail=detail) for text in REPLIES.get(act, ()))


def slots_of(transcript: Sequence[Message]) -> dict[str, str]:
    """The user's own words by kind ("" where the user has not named one), read from the transcript."""
    return {kind: next(iter(sorted(words)), "") for kind, words in Heard.of(transcript).slot_words.items()}


def speak(act: Act, transcript: Sequence[Message], draw: float) -> str:
    """A sentence of ``act`` not said yet in this dialogue (any, when all were); ``draw`` in [0, 1) picks it."""
    slots = slots_of(transcript)
    texts = reply_texts(act, slots["topic"], slots["feeling"], slots["detail"])
    said = {words_of(line.content) for line in spoken(transcript) if line.role == "assistant"}
    fresh = [text for text in texts if words_of(text) not in said] or list(texts)
    return fresh[int(draw * len(fresh))]
