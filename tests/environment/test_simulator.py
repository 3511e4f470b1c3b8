"""How a simulated user's text enters a dialogue (field case 25)."""

import pytest
from tests.scripted import register, rolled_out, settings

from dialrl.environment.simulator import EMPTY_LINE, END_MARKER, REPETITION, ROLE_FLIP, read_line, simulator_view
from dialrl.scenario.message import Message
from dialrl.testing import ScriptedEnvironment, scripted_policy

DIALOGUE = [
    Message("system", "Be kind."),
    Message("user", "I feel low."),
    Message("assistant", "Since when?"),
    Message("user", "Since May."),
    Message("assistant", "That is long."),
]


def test_the_simulator_sees_its_own_opening_line_first_and_the_policy_as_the_user():
    view = [(message.role, message.content) for message in simulator_view(DIALOGUE)]
    assert view == [
        ("assistant", "I feel low."),
        ("user", "Since when?"),
        ("assistant", "Since May."),
        ("user", "That is long."),
    ]


def test_the_end_marker_is_cut_off_and_ends_the_dialogue():
    line = read_line("Thanks, bye. ###END###", DIALOGUE)
    assert (line.text, line.ended, line.flags) == ("Thanks, bye.", True, ())


def test_what_follows_the_marker_is_not_said():
    assert read_line("Bye. ###END### The user leaves.", DIALOGUE).text == "Bye."


def test_a_line_without_marker_is_kept_as_it_is():
    line = read_line("  I do not know. ", DIALOGUE)
    assert (line.text, line.ended, line.flags) == ("  I do not know. ", False, ())


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("Since May.", (REPETITION,)),
        ("since MAY!", (REPETITION,)),
        ("How can I help you today?", (ROLE_FLIP,)),
        ("Thank you for sharing. I am here to listen.", (ROLE_FLIP,)),
        ("무엇을 도와드릴까요?", (ROLE_FLIP,)),
        ("저는 AI라서 잘 모르지만 말씀해 주셔서 감사합니다.", (ROLE_FLIP,)),
        ("有什么可以帮到您？", (ROLE_FLIP,)),
        ("作为一个人工智能，谢谢你的分享。", (ROLE_FLIP,)),
        ("谁能帮帮我？我不知道怎么办。", ()),
        ("누가 좀 도와줬으면 좋겠어요.", ()),
        ("  ", (EMPTY_LINE,)),
        ("I wish someone were here to help.", ()),
    ],
)
def test_odd_lines_are_flagged_and_kept(text, flags):
    line = read_line(text, DIALOGUE)
    assert (line.text, line.flags) == (text, flags)


def test_a_rollout_ends_at_the_users_marker_never_at_the_policys_and_counts_the_flags(tmp_path, monkeypatch):
    lines = ["I feel low.", "Since May.", "Since May.", f"Thanks, bye. {END_MARKER}", "never said"]
    register(monkeypatch, environment=ScriptedEnvironment(lines, scenarios=["one"]))
    policy = scripted_policy([f"Goodbye. {END_MARKER}"])
    rows, summary = rolled_out(tmp_path / "r.parquet", settings(groups=1, samples=1, environment_options={}), policy)
    assert [row["reply"] for row in rows] == [f"Goodbye. {END_MARKER}"] * 3
    assert rows[-1]["end_reason"] == "farewell"
    assert [message["content"] for message in rows[-1]["final_messages"]] == ["Thanks, bye."]
    assert summary.figures["flags"] == {REPETITION: 1}
