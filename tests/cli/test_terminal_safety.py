"""Text of models, users and files is shown as text: no markup, no escape sequence, no control byte is obeyed."""

import pytest
from tests.trajectory_files import row, write

from dialrl.cli.plain_text import clean
from dialrl.cli.progress_view import drawn
from dialrl.cli.summary_view import show_summary
from dialrl.cli.trajectory_view import vector
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

EVIL = "[bold]no[/bold] [/oops] \x1b[31mred\x1b]0;title\x07 \x00\x08 \x9b1m \u202eright to left \U000e0041"
SHOWN = (
    r"[bold]no[/bold] [/oops] \u001b[31mred\u001b]0;title\u0007 \u0000\u0008 \u009b1m \u202eright to left \U000e0041"
)
DANGEROUS = set("\x1b\x07\x00\x08\x9b\u202e\U000e0041")


def evil_rows(**more):
    """One dialogue that says EVIL wherever it can."""
    return [
        row(
            f"g {EVIL}", 0, 0, reply=EVIL, status="error", error=f"oops {EVIL}", end_reason="error",
            messages=[{"role": f"user {EVIL}", "name": EVIL, "content": EVIL}],
            final_messages=[{"role": "user", "name": None, "content": EVIL}],
            flags=[EVIL], environment=EVIL, judge_status="missing", judge_error=EVIL,
            grades=[{"indicator": EVIL, "level": 1, "evidence": EVIL, "reasoning": EVIL}], **more,
        )
    ]  # fmt: skip


@pytest.fixture
def evil(tmp_path):
    return write(tmp_path / "evil.parquet", evil_rows())


def assert_harmless(text):
    assert DANGEROUS & set(text) == set()


def test_control_and_format_characters_become_escapes_and_all_else_stays():
    assert clean(EVIL) == SHOWN
    assert clean("plain\nline é 你好 🙂 \u00a0\u2028") == "plain\nline é 你好 🙂 \u00a0\u2028"
    assert clean("\ud83d\r\t") == r"\ud83d\u000d\u0009"
    assert clean("") == ""


def test_a_dialogue_is_shown_as_it_was_said(run, evil):
    ended = run("inspect", evil, "--dialogue", f"g {EVIL}/0", "--tokens")
    assert ended.code == 0
    assert_harmless(ended.out)
    assert ended.out.count(SHOWN) >= 6
    assert f"turn 0 policy  {SHOWN}" in ended.out
    assert f"user  {SHOWN}" in ended.out
    assert f"judgement missing ({SHOWN})" in ended.out


def test_counts_of_a_file_show_its_values_as_text(run, evil):
    ended = run("inspect", evil)
    assert ended.code == 0
    assert_harmless(ended.out)
    assert "[bold]no[/bold] [/oops]" in ended.out


def test_a_lineage_is_only_shown(run, tmp_path):
    table = rows_to_table([row("g")])
    with TrajectoryWriter(tmp_path / "t.parquet", table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("rollout", options={EVIL: EVIL}),)))
    ended = run("inspect", tmp_path / "t.parquet")
    assert ended.code == 0
    assert_harmless(ended.out)


def test_an_error_that_quotes_a_file_is_harmless(run, tmp_path):
    path = write(tmp_path / "t.parquet", [row(f"b{EVIL}"), row(f"a{EVIL}")])
    ended = run("inspect", path)
    assert ended.code == 2
    assert_harmless(ended.err)
    assert f"dialogue 'a{SHOWN}/0'" in ended.err


def test_an_argument_is_echoed_harmlessly(run, tmp_path):
    ended = run("inspect", tmp_path / "no \x1b[31m file.parquet")
    assert ended.code == 2
    assert_harmless(ended.err)


def test_json_escapes_what_a_terminal_would_obey(run, evil):
    ended = run("inspect", evil, "--dialogue", f"g {EVIL}/0", "--json")
    assert set("\x1b\x07\x00\x08") & set(ended.out) == set()
    assert ended.json["turns"][0]["reply"] == EVIL


def test_a_summary_shows_figures_and_warnings_as_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    figures = {EVIL: EVIL, "nested": {EVIL: EVIL}, "table": {EVIL: {"a": EVIL}}}
    show_summary(StageSummary(f"stage {EVIL}", counts={"turns": 1}, figures=figures, warnings=(EVIL,)))
    out = capsys.readouterr().out
    assert_harmless(out)
    assert f"! {SHOWN}" in out


def test_progress_messages_are_text(capsys):
    with drawn(quiet=False) as progress:
        progress.start("rollout", 1, "dialogues")
        progress.message(EVIL)
    assert capsys.readouterr().err == SHOWN + "\n"


def test_points_are_short():
    assert vector([-17.0, 0.5, 1e-12]) == "(-17, 0.5, 1e-12)"
