"""How figures, tables, curves and progress look."""

import io

import pytest

from dialrl.cli.doctor_view import show_diagnosis
from dialrl.cli.progress_view import drawn
from dialrl.cli.summary_view import format_value, show_summary
from dialrl.cli.train_view import IterationTable, curve
from dialrl.cli.trajectory_view import dialogue_lines
from dialrl.doctor.check import Check, Diagnosis
from dialrl.summary import StageSummary


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (True, "yes"), (False, "no"), (0, "0"), (1, "1"), (12_345, "12,345"), (0.123456, "0.1235"),
        (-3.469e-17, "0"), (1e-12, "1e-12"),
        (1234567.0, "1.235e+06"), ([1, 0.5], "1, 0.5"), ((), "none"), ({}, "none"), ({"a_b": 1}, "a b 1"), ("x", "x"),
    ],
)  # fmt: skip
def test_values_are_short_for_people(value, shown):
    assert format_value(value) == shown


def test_a_summary_is_lines_tables_counts_and_warnings(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    figures = {
        "mean_return": 0.25,
        "pools": {"turn": {"pools": 3, "degenerate": 1}, "group": {"pools": 2, "degenerate": 0}},
    }
    show_summary(StageSummary("advantage", None, {"turns": 1234}, figures, ("Mind the gap.",)))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "advantage"
    assert lines[1].split() == ["mean", "return", "0.25"]
    assert [line.split() for line in lines[2:6]] == [
        ["pools"],
        ["pools", "degenerate"],
        ["turn", "3", "1"],
        ["group", "2", "0"],
    ]
    assert lines[6:] == ["1,234 turns", "! Mind the gap."]


LONG = {
    "reward_incremental-distance-of-all-the-turns": {"estimated": 0.1, "b" * 70: 1},
    "c" * 64: {"estimated": 2, "b" * 70: 3},
}


def test_where_there_is_no_terminal_nothing_is_cut_or_padded(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    digest = "0123456789abcdef" * 12
    show_summary(StageSummary("advantage", None, {"turns": 1}, {"digest": digest, "columns": LONG}, ("Mind. " * 40,)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"  digest  {digest}"
    assert lines[4].split() == ["reward", "incremental-distance-of-all-the-turns", "0.1", "1"]
    assert lines[5].split() == ["c" * 64, "2", "3"]
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) == 8


def test_a_narrow_terminal_folds_names_and_cuts_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    show_summary(StageSummary("advantage", None, {}, {"columns": LONG}))
    assert "\u2026" not in capsys.readouterr().out


def test_trained_tokens_are_marked_without_colour_too(capsys):
    spans = [
        {"segment": 0, "text": "<|user|>[1] Hi", "trained": False},
        {"segment": 0, "text": "So?<|end|>", "trained": True},
        {"segment": 0, "text": "\n", "trained": False},
    ]
    found = Check("Template", "tokens", "ok", "read", details={"spans": spans})
    show_diagnosis(Diagnosis((found,)))
    assert "<|user|>[1] Hi[So?<|end|>]\u21b5" in capsys.readouterr().out


@pytest.mark.parametrize(("reply", "shown"), [(None, "(no reply)"), ("", "(an empty reply)"), ("Hm.", "Hm.")])
def test_no_reply_and_an_empty_one_look_different(reply, shown):
    lines = [line.plain for line in dialogue_lines([{"group_id": "g", "sample": 0, "turn": 0, "reply": reply}])]
    assert f"turn 0 policy  {shown}" in lines


def test_a_curve_has_its_points_between_the_lines_of_reference():
    plot = curve(
        [(0, 0.1), (10, 0.6)], {"silent": 0.0, "myopic": 0.3, "optimum": 1.0, "clairvoyant": 9.0}, height=11, width=20
    )
    rows = plot.splitlines()
    assert [index for index, row in enumerate(rows) if "*" in row] == [4, 9]
    assert rows[0].endswith("optimum 1.00")
    assert rows[0].count(".") == 20 + 2  # the line, and two decimal points
    assert rows[7].endswith("myopic 0.30")
    assert rows[10].strip().startswith("0.00 |")
    assert rows[-1].split() == ["0", "10"]


def test_a_curve_of_one_or_of_equal_points_is_drawn():
    assert curve([(0, 0.5)], {}).count("*") == 1
    assert curve([(0, 0.0), (1, 0.0)], {}).count("*") == 2
    assert "*" in curve([(0, -3.0), (5, -2.0)], {})


RECORD = {
    "iteration": 1, "score": 2.5, "share": 0.25, "mean_turns": 7.5, "evaluation": {"share": 0.3},
    "update": {"entropy": 1.5, "gradient_norm": 0.5, "mean_abs_advantage": 0.7, "ratio_max": 1.25},
    "seconds": {"rollout": 1.0, "update": 0.5},
}  # fmt: skip


def test_an_iteration_is_a_line_where_no_terminal_is(capsys):
    with IterationTable(5, quiet=False) as table:
        table.add(RECORD)
        table.add({**RECORD, "score": None, "share": None, "evaluation": None, "update": {}})
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "iteration 2/5  reward 2.5  share 0.25  held out 0.3  turns 7.5  entropy 1.5  grad norm 0.5  |A| 0.7"
        "  ratio max 1.25  seconds 1.5"
    )
    assert second == "iteration 2/5  turns 7.5  seconds 1.5"


def test_nothing_is_shown_when_quiet(capsys):
    with IterationTable(5, quiet=True) as table:
        table.add(RECORD)
    with drawn(quiet=True) as progress:
        progress.start("rollout", 3, "dialogues")
        progress.advance(3)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_progress_has_a_bar_with_what_is_done(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    with drawn(quiet=False) as progress:
        progress.start("rollout", 4, "dialogues")
        progress.advance(3, reward=0.5)
        progress.message("[bold] kept")
    shown = terminal.getvalue()
    assert "[bold] kept" in shown
    assert "rollout" in shown
    assert "3/4" in shown
    assert "reward 0.5" in shown
