"""What goes into a report: sources, figures by hand, dialogues, one page; what is refused."""

import base64
import gzip
import json
import random
import sys

import pytest

from dialrl.errors import InputError, MissingExtraError, MissingInputError, OutputExistsError, UsageError
from dialrl.report import page as pages
from dialrl.report.config import ReportConfig
from dialrl.report.dialogues import Budget, dialogues_of
from dialrl.report.file_figures import file_figures
from dialrl.report.overview import cards
from dialrl.report.page import json_for_html, packed
from dialrl.report.run_figures import held_out_curve, pools_of, reference_lines, training_curve
from dialrl.report.sources import DialogueSet, Run, sort_out
from dialrl.report.stage import report
from dialrl.trajectory.reader import TrajectoryFile
from trajectory_files import judged, row, write


def opened(path, rows, *stages):
    return DialogueSet("file", TrajectoryFile.open(write(path / "file.parquet", rows, *stages)))


# sources ------------------------------------------------------------------------------------------------------------


def test_a_run_gives_its_start_its_latest_evaluation_and_its_latest_training_file(run_directory):
    given = sort_out([run_directory])
    assert [run.name for run in given.runs] == ["tiny"]
    assert [(one.role, one.name) for one in given.sets] == [
        ("before", "before training"),
        ("after", "after 2 iterations"),
        ("training", "training, iteration 2"),
    ]


def test_names_are_the_shortest_ends_that_tell_inputs_apart(run_directory):
    files = [run_directory / "0000" / "advantage.parquet", run_directory / "0001" / "advantage.parquet"]
    assert [one.name for one in sort_out(files).sets] == ["0000/advantage", "0001/advantage"]


def test_what_cannot_be_shown_is_refused(tmp_path, run_directory):
    with pytest.raises(UsageError, match="needs something to show"):
        sort_out([])
    with pytest.raises(MissingInputError, match="does not exist"):
        sort_out([tmp_path / "nothing"])
    with pytest.raises(UsageError, match="given twice"):
        sort_out([run_directory, run_directory])
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "pipeline.yaml").write_text("policy: demo-policy\n")
    with pytest.raises(UsageError, match="is a pipeline, which has nothing to show"):
        sort_out([tmp_path / "new" / "pipeline.yaml"])
    with pytest.raises(InputError, match="no trajectory file yet"):
        sort_out([tmp_path / "new"])


# figures ------------------------------------------------------------------------------------------------------------


def test_levels_of_an_indicator_stand_from_the_lowest_up_and_zero_is_left_out(tmp_path):
    given = [{"indicator": "C.Neg", "level": level} for level in (-1, 0, -2, -1)]
    kept = file_figures(opened(tmp_path, [row("g", 0, grades=[*given, {"indicator": "A.Prog", "level": 2}])])).levels
    assert [(one["indicator"], one["level"], one["count"]) for one in kept] == [
        ("A.Prog", 2, 1), ("C.Neg", -2, 1), ("C.Neg", -1, 2),
    ]  # fmt: skip


def test_the_curve_has_the_starting_policy_intervals_and_reference_lines(run_directory):
    run = Run("tiny", run_directory)
    curve = held_out_curve(run, "share")
    assert [point["iteration"] for point in curve] == [0, 2]
    assert all(point["low"] <= point["value"] <= point["high"] for point in curve)
    assert [point["iteration"] for point in training_curve(run, "share")] == [1, 2]
    assert [(line["line"], line["value"]) for line in reference_lines([run], "share")][::2] == [
        ("silent", 0.0),
        ("optimum", 1.0),
    ]


def test_pools_whose_returns_are_equal_are_counted(tmp_path):
    def returned(group, *dialogues):
        return [
            {**row(group, sample, turn), "return": value}
            for sample, values in enumerate(dialogues)
            for turn, value in enumerate(values)
        ]

    rows = returned("a", (3.0, 1.0), (2.0, 1.0)) + returned("b", (4.0,), (4.0,)) + returned("c", (5.0, None))
    group, turn = pools_of(opened(tmp_path, rows).source)
    assert (group["pools"], group["degenerate"]) == (3, 2)  # b is equal, c is alone; a differs
    assert (turn["pools"], turn["degenerate"]) == (4, 3)  # a's second turns are equal; c's unknown turn is no pool


def test_reward_by_turn_before_returns_is_the_distance_gained(tmp_path):
    rows = judged({"g": [(-7.0, -7.0), (-4.0, -5.0)]})  # from -9: 2 then 0; 5 then -1
    figures = file_figures(opened(tmp_path, rows, "rollout", "judge"))
    assert [(entry["turn"], entry["mean"], entry["turns"]) for entry in figures.reward_by_turn] == [
        (1, 3.5, 2),
        (2, -0.5, 2),
    ]
    half = 1.96 * (4.5**0.5) / 2**0.5  # sample variance of 2 and 5
    assert figures.reward_by_turn[0]["high"] == pytest.approx(3.5 + half)
    assert figures.advantages == []
    assert (figures.counts["groups"], figures.counts["dialogues"], figures.counts["turns"]) == (1, 2, 4)


def test_length_by_turn_is_in_tokens_or_without_ids_in_characters(tmp_path):
    rows = [row("g", 0, 0, reply="好的。", reply_ids=[1, 2]), row("g", 0, 1, reply="ok", reply_ids=[3])]
    figures = file_figures(opened(tmp_path, rows))
    assert (figures.length_unit, [entry["mean"] for entry in figures.length_by_turn]) == ("tokens", [2.0, 1.0])
    for entry in rows:
        del entry["reply_ids"]
    figures = file_figures(opened(tmp_path, rows))
    assert (figures.length_unit, [entry["mean"] for entry in figures.length_by_turn]) == ("characters", [3.0, 2.0])


def test_the_histogram_of_each_term_adds_up(run_directory):
    figures = file_figures(sort_out([run_directory / "0001" / "advantage.parquet"]).sets[0])
    shares: dict[str, float] = {}
    for bar in figures.advantages:
        shares[bar["term"]] = shares.get(bar["term"], 0.0) + bar["share"]
    assert shares == pytest.approx({"mica": 1.0, "mica: turn": 1.0, "mica: group": 1.0})


def test_flags_cut_replies_and_missing_judgements_are_counted(hostile_file):
    figures = file_figures(sort_out([hostile_file]).sets[0])
    assert {entry["flag"]: entry["count"] for entry in figures.flags}["cut reply"] == 4
    assert {entry["status"]: entry["count"] for entry in figures.judge} == {"ok": 3, "missing": 1}


def test_the_cards_of_a_run_say_before_after_and_best(run_directory):
    names = [card["name"] for card in cards([Run("tiny", run_directory)], [])]
    assert names[:3] == ["share of optimum before", "after 2 iterations", "best"]


# dialogues ----------------------------------------------------------------------------------------------------------


def test_a_dialogue_carries_what_is_known_and_nothing_else(tmp_path):
    rows = judged({"g": [(-7.0,)]})
    (dialogue,) = dialogues_of(opened(tmp_path, rows), ReportConfig(), Budget(ReportConfig()))
    assert dialogue == {
        "i": "g/0", "g": "g", "s": 0, "d": [-9.0], "e": "turn_limit",
        "t": [{"n": 0, "m": [["user", "Hello."]], "r": "Yes.", "w": 2.0, "p": [-7.0]}],
    }  # fmt: skip


def test_the_limit_keeps_whole_groups(tmp_path):
    given = opened(tmp_path, judged({"a": [(-7.0,)] * 3, "b": [(-7.0,)] * 2}))
    shown = [d["i"] for d in dialogues_of(given, ReportConfig(dialogues=2), Budget(ReportConfig()))]
    assert shown == ["a/0", "a/1", "a/2"]


def test_token_ids_go_in_as_long_as_the_budget_lasts(tmp_path):
    rows = [row("g", sample, reply_ids=[1, 2], prompt_ids=[3], reply_logprobs=[-0.126, -1.0]) for sample in (0, 1)]
    budget = Budget(ReportConfig(tokens=4))
    first, second = dialogues_of(opened(tmp_path, rows), ReportConfig(), budget)
    assert (first["t"][0]["k"], first["t"][0]["c"], first["t"][0]["q"]) == ([1, 2], [3], [-0.13, -1.0])
    assert ("k" in second["t"][0], second["t"][0]["nk"], budget.without_tokens) == (False, 2, 1)


def test_judges_words_go_in_as_long_as_the_budget_lasts(tmp_path):
    grades = [{"indicator": "C.Prog", "level": 1, "evidence": "four", "reasoning": "six..."}]
    budget = Budget(ReportConfig(quotes=10))
    given = opened(tmp_path, [row("g", sample, grades=grades) for sample in (0, 1)])
    first, second = dialogues_of(given, ReportConfig(), budget)
    assert first["t"][0]["l"] == [["C.Prog", 1, "four", "six..."]]
    assert (second["t"][0]["l"], budget.without_quotes) == ([["C.Prog", 1]], 1)


# the page -----------------------------------------------------------------------------------------------------------


def test_json_in_the_page_cannot_end_its_tag():
    text = json_for_html({"x": "</script> & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"x": "</script> & \u2028"}


def test_dialogues_are_packed_the_same_every_time():
    content = [{"r": "</script>"}]
    assert packed(content) == packed(content)
    assert json.loads(gzip.decompress(base64.b64decode(packed(content)))) == content


def test_the_page_forbids_itself_every_connection(run_page):
    text = run_page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "@@" not in text.partition("<body>")[0]


def test_no_text_of_a_model_stands_in_the_page_as_markup(hostile_file, tmp_path):
    report([hostile_file], tmp_path / "report.html", ReportConfig(title="<b>mine</b>"))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>window.hacked" not in text
    assert "<img" not in text.partition("</main>")[0]
    assert "<h1>&lt;b&gt;mine&lt;/b&gt;</h1>" in text


def test_five_hundred_dialogues_of_long_turns_stay_under_ten_megabytes(tmp_path):
    words = [f"word{number}" for number in range(2000)]
    generator = random.Random(0)
    rows = judged({f"g{group:02}": [(-8.0, -7.5, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0)] * 10 for group in range(50)})
    for entry in rows:
        entry["reply"] = " ".join(generator.choices(words, k=60))
        entry["messages"] = [{"role": "user", "content": " ".join(generator.choices(words, k=40))}]
        entry.update(
            reply_ids=generator.choices(range(30_000), k=80), prompt_ids=generator.choices(range(30_000), k=60)
        )
        entry["reply_logprobs"] = [-generator.random() for _ in range(80)]
    write(tmp_path / "long.parquet", rows, "rollout", "judge")
    summary = report([tmp_path / "long.parquet"], tmp_path / "report.html")
    assert summary.counts["dialogues"] == 500
    assert summary.counts["bytes"] < 10_000_000


def test_the_same_input_gives_the_same_page(hostile_file, tmp_path):
    for name in ("a", "b"):
        report([hostile_file], tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_an_existing_page_is_kept_unless_it_may_be_replaced(hostile_file, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("mine")
    with pytest.raises(OutputExistsError, match=r"use --overwrite to replace it\.$"):
        report([hostile_file], page)
    assert page.read_text() == "mine"
    report([hostile_file], page, overwrite=True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_the_library_the_extra_is_named(hostile_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    pages.plotting_library.cache_clear()
    with pytest.raises(MissingExtraError, match=r"dialrl\[report\]"):
        report([hostile_file], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
