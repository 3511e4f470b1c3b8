import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialrl.environment.demo.acts import CHARACTER_LIMIT, Act, features
from dialrl.environment.demo.replies import REPLIES, reply_texts
from dialrl.scenario.message import Message

OPENING = [Message("user", "I just feel so sad because of the exam. It is good to talk.")]
TOLD = [
    *OPENING,
    Message("assistant", "What makes the exam so heavy?"),
    Message("user", "Honestly it is all about my father."),
]


@pytest.mark.parametrize(
    ("reply", "act"),
    [
        ("", Act.SILENT),
        ("  \n ", Act.SILENT),
        ("It makes sense that you feel sad.", Act.VALIDATE),
        ("So the EXAM stays on your mind.", Act.PARAPHRASE),
        ("You are sad about the exam.", Act.VALIDATE),
        ("You are stronger than you think.", Act.AFFIRM),
        ("You should forget the exam.", Act.ADVISE),
        ("Should we speak about the exam?", Act.ASK),
        ("How are you?", Act.GENERIC),
        ("I see.", Act.GENERIC),
        ("<i>!!!</p>", Act.GENERIC),
        ("🙂", Act.GENERIC),
        ("You feel lonely.", Act.GARBLED),
        ("So the job stays on your mind.", Act.GARBLED),
        ("So it is your father.", Act.GARBLED),
        ("sad sad", Act.GARBLED),
        ("sad " * 50_000, Act.GARBLED),
        ("x" * 50_000, Act.GARBLED),
    ],
)
def test_a_reply_to_the_opening_is_read_as_one_act(reply: str, act: Act) -> None:
    assert features(reply, OPENING).act is act


@pytest.mark.parametrize(
    ("reply", "act"),
    [
        ("So under all of it is your father.", Act.RESONATE),
        ("It is brave to speak of your father.", Act.EMPOWER),
        ("Try one small step with your father.", Act.EMPOWER),
        ("Is it about your father?", Act.ASK),
        ("It is your mother.", Act.GARBLED),
        ("what makes the exam so heavy ?!", Act.REPEAT),
    ],
)
def test_once_told_the_detail_can_be_named(reply: str, act: Act) -> None:
    assert features(reply, TOLD).act is act


def test_every_shipped_reply_is_read_as_its_act() -> None:
    for act in REPLIES:
        for text in reply_texts(act, "exam", "sad", "father"):
            assert features(text, TOLD[:1] + TOLD[2:]).act is act, text


def test_a_system_message_says_nothing() -> None:
    transcript = [Message("system", "The user is lonely."), *OPENING]
    assert features("You feel lonely.", transcript).off_topic


@settings(max_examples=50)
@given(st.text(max_size=2 * CHARACTER_LIMIT))
def test_any_text_has_an_act(reply: str) -> None:
    assert features(reply, TOLD).act in Act
