"""The terminal browser: lists, filters, keys; text stays text."""

import asyncio

import pytest

from dialrl.errors import UsageError
from dialrl.trajectory.listing import chosen, list_dialogues, list_groups
from dialrl.trajectory.reader import TrajectoryFile
from trajectory_files import judged, row, write

pytest.importorskip("textual", reason="textual is not installed: the terminal browser is not tried")

from textual.widgets import RichLog

from dialrl.cli.browse import Browser

EVIL = "[bold]no[/bold] [/oops] \x1b[31mred"


def rows():
    """Two groups: a/0 has a missing judgement, a/1 a flag and the largest advantage, b/0 broke."""
    return [
        row("a", 0, reply="First.", judge_status="missing", reward=None, advantage=0.5, flags=[]),
        row("a", 1, reply=EVIL, judge_status="ok", reward=3.0, advantage=-2.0, flags=["odd"], reply_ids=[7, 8]),
        row("b", 0, reply=None, judge_status="ok", reward=1.0, advantage=None, flags=[], status="error"),
    ]


@pytest.fixture
def source(tmp_path):
    return TrajectoryFile.open(write(tmp_path / "some.parquet", rows(), "rollout", "judge", "returns", "advantage"))


def test_the_list_says_what_one_filters_by(source):
    entries = list_dialogues(source)
    assert [(e.dialogue_id, e.reward, e.largest_advantage, e.missing, e.flags, e.is_broken) for e in entries] == [
        ("a/0", None, 0.5, 1, 0, False),
        ("a/1", 3.0, 2.0, 0, 1, False),
        ("b/0", 1.0, None, 0, 0, True),
    ]
    assert [(g.group, g.dialogues, g.reward, g.spread) for g in list_groups(entries)] == [
        ("a", 2, 3.0, 0.0),
        ("b", 1, 1.0, 0.0),
    ]


@pytest.mark.parametrize(
    ("filter", "order", "ids"),
    [
        ("all", "file", ["a/0", "a/1", "b/0"]),
        ("missing", "file", ["a/0"]),
        ("flags", "file", ["a/1"]),
        ("broken", "file", ["b/0"]),
        ("all", "advantage", ["a/1", "a/0", "b/0"]),
        ("all", "reward", ["a/1", "b/0", "a/0"]),
    ],
)
def test_dialogues_are_filtered_and_ordered_unknown_ones_last(source, filter, order, ids):
    assert [entry.dialogue_id for entry in chosen(list_dialogues(source), filter, order)] == ids


def said(browser):
    return "\n".join(line.text for line in browser.query_one("#said", RichLog).lines)


async def pressed(browser, *steps):
    """Press each step's keys; what was on the right, and which dialogues were listed, after each of them."""
    seen = []
    async with browser.run_test(size=(140, 40)) as pilot:
        for keys in steps:
            await pilot.press(*keys)
            await pilot.pause()
            seen.append((said(browser), [entry.dialogue_id for entry in browser.shown]))
    return seen


def test_keys_move_filter_search_and_show_tokens(source):
    start, second, tokens, missing, every, found = asyncio.run(
        pressed(Browser(source), [], ["j"], ["t"], ["f"], ["escape"], ["slash", "b", "enter"])
    )
    assert "dialogue a/0" in start[0]
    assert "judgement missing" in start[0]
    assert "dialogue a/1" in second[0]
    assert "[7 8]" in tokens[0]
    assert missing[1] == ["a/0"]
    assert every[1] == ["a/0", "a/1", "b/0"]
    assert found[1] == ["b/0"]


def test_text_of_a_model_is_no_markup(source):
    (_, (shown, _)) = asyncio.run(pressed(Browser(source), [], ["j"]))
    assert r"[bold]no[/bold] [/oops] \u001b[31mred" in shown


def test_a_list_without_dialogues_says_so(tmp_path):
    source = TrajectoryFile.open(write(tmp_path / "one.parquet", judged({"g": [(-7.0,)]}), "rollout", "judge"))
    _, (shown, listed) = asyncio.run(pressed(Browser(source), [], ["f"]))
    assert (shown.strip(), listed) == ("No dialogue is like that.", [])


def test_without_a_terminal_the_other_ways_are_named(run, source):
    ended = run("inspect", source.shards[0].path, "--browse")
    assert ended.code == UsageError.exit_code
    assert "needs a terminal" in ended.err
