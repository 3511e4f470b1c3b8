"""EmoBench: loading, both scorings, orders, chance and constant answers, refusals, and the published items."""

import csv
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmark_files import ea_item, eu_item, write_lines
from tests.reference_data import reference

from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench import evaluate_emobench
from dialrl.evaluate.emobench_items import load_items, shown_order
from dialrl.evaluate.emobench_score import best_constant_answer, vote

QUICK = {"resamples": 50}
ITEMS = (ea_item("1", 0), ea_item("2", 2), eu_item("1", (1, 3)), eu_item("2", (0, 0), causes=6))


def questions_file(tmp_path, items=ITEMS):
    return write_lines(tmp_path / "questions.jsonl", items)


def evaluated(tmp_path, answers, items=ITEMS, output=None, **options):
    file = write_lines(tmp_path / "answers.jsonl", answers)
    config = EmoBenchConfig(**{**QUICK, **options})
    return evaluate_emobench([file], [questions_file(tmp_path, items)], config, output=output)


def ea(qid, answer, **more):
    return {"qid": qid, "lang": "en", "category": "Personal-Self", "answer": answer, **more}


def eu(qid, emotion, cause, **more):
    return {"qid": qid, "lang": "en", "emo_answer": emotion, "cause_answer": cause, **more}


# votes and orders ---------------------------------------------------------------------------------------------------


def test_ties_go_to_the_answer_seen_first():
    assert vote([2, 0, 0, 2, 1]) == 2
    assert vote([0, 2, 2, 0, 1]) == 0


def test_what_was_not_parsed_loses_to_the_runner_up():
    assert vote([None, None, None, 3, 1]) == 3
    assert vote([None, None]) is None


@given(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=6))
def test_a_vote_elects_one_of_the_most_frequent_known_answers(samples):
    known = [sample for sample in samples if sample is not None]
    elected = vote(samples)
    assert elected is None if not known else samples.count(elected) == max(map(samples.count, known))


def test_shuffled_orders_are_permutations_and_the_same_for_the_same_seed(tmp_path):
    items = load_items([questions_file(tmp_path)])
    item = items["EU", "en", "2"]
    cause = item.parts[1]
    orders = [shown_order(item, cause, number, 7) for number in range(6)]
    assert orders[0] == (0, 1, 2, 3, 4, 5)
    assert all(sorted(order) == list(orders[0]) for order in orders)
    assert len(set(orders)) > 3
    assert orders == [shown_order(item, cause, number, 7) for number in range(6)]
    assert orders[1:] != [shown_order(item, cause, number, 8) for number in range(1, 6)]


# scoring 2025 -------------------------------------------------------------------------------------------------------


def test_an_eu_item_is_right_only_if_both_its_parts_are(tmp_path):
    answers = [eu("1", "B", "D"), eu("2", "A", "B")]
    figures = evaluated(tmp_path, answers).figures
    assert (figures["score"], figures["score_is"]) == (50.0, "accuracy, EU en")


def test_the_summary_reports_each_task_and_a_named_mean(tmp_path):
    answers = [ea("1", "A"), ea("2", "A"), eu("1", "B", "D"), eu("2", "A", "A")]
    summary = evaluated(tmp_path, answers)
    shown = summary.to_json()
    assert {name: cell["score"] for name, cell in shown["results"].items()} == {"EA en": 50.0, "EU en": 100.0}
    assert (shown["score"], shown["score_is"]) == (75.0, "mean of the tasks and languages, a convenience")
    assert shown["results"]["EA en"]["chance"] == 25.0
    assert shown["results"]["EU en"]["chance"] == pytest.approx(100 * (1 / 24 + 1 / 36) / 2)
    assert shown["categories"]["EU en"] == {"emotional_cues": {"score": 100.0, "items": 2}}
    assert shown["settings"]["scoring"] == "2025"
    json.dumps(shown, allow_nan=False)


def test_only_the_bare_letter_is_an_answer(tmp_path):
    summary = evaluated(tmp_path, [ea("1", "a"), ea("2", "")])
    assert (summary.figures["score"], summary.figures["parse_rate"]) == (0.0, 0.0)
    assert "2 items have no parsed answer; they count as wrong." in summary.warnings
    assert evaluated(tmp_path, [ea("1", "E"), ea("2", None)]).counts["unparsed_items"] == 2


def test_unanswered_items_are_left_out_and_counted(tmp_path):
    summary = evaluated(tmp_path, [ea("1", "A")])
    assert (summary.figures["score"], summary.counts["unanswered_items"]) == (100.0, 1)
    assert any("1 items have no answer in the file" in warning for warning in summary.warnings)


def test_shuffled_answers_are_read_by_the_order_they_were_shown_in(tmp_path):
    items = load_items([questions_file(tmp_path)])
    answers = []
    for qid in ("1", "2"):
        item = items["EA", "en", qid]
        place = shown_order(item, item.parts[0], 1, 5).index(item.parts[0].right)
        answers += [ea(qid, "A"), ea(qid, "ABCD"[place], order=1)]
    figures = evaluated(tmp_path, answers, shuffle_seed=5).figures
    assert (figures["score"], figures["results"]["EA en"]["shuffled"]) == (50.0, 100.0)
    assert figures["by_order"] == {"EA en": {"shipped": 50.0, "order 1": 100.0}}


def test_tasks_languages_and_a_limit_choose_items(tmp_path):
    items = [*ITEMS, ea_item("1", 3, language="zh")]
    answers = [ea("1", "A"), ea("2", "A"), {"qid": 1, "language": "zh", "answer": "D"}, eu("1", "A", "A")]
    assert evaluated(tmp_path, answers, items, tasks=("EA",), languages=("zh",)).figures["score"] == 100.0
    summary = evaluated(tmp_path, answers, items, tasks=("EA",), limit=1)
    assert summary.counts["items"] == 2
    assert "Only 2 items were scored: this is no EmoBench score." in summary.warnings
    with pytest.raises(InputError, match="No answer to an item of fr"):
        evaluated(tmp_path, answers, items, languages=("fr",))


def test_the_results_file_pairs_the_languages_of_an_item(tmp_path):
    items = [ea_item("1", 0), ea_item("1", 0, language="zh")]
    output = tmp_path / "items.parquet"
    evaluated(tmp_path, [ea("1", "A"), ea("1", "", lang="zh")], items, output=output)
    rows = pq.read_table(output).to_pylist()
    assert [(row["scenario_id"], row["item"], row["score"], row["status"]) for row in rows] == [
        ("EA/1", "EA/en/1", 100.0, "scored"),
        ("EA/1", "EA/zh/1", 0.0, "unparsed"),
    ]


# scoring 2024 -------------------------------------------------------------------------------------------------------


def test_samples_vote_part_by_part_in_each_order_and_orders_are_averaged(tmp_path):
    draws = [("B", "D"), ("B", "A"), ("A", "D")]  # the votes are B and D, though only one draw is right
    answers = [eu("1", *draw, sample=number) for number, draw in enumerate(draws)]
    answers += [eu("1", "", "", order=1)]
    assert evaluated(tmp_path, answers, scoring="2024").figures["score"] == 50.0
    assert evaluated(tmp_path, answers).figures["score"] == pytest.approx(100 / 3)


def csv_file(folder, name, header, *rows):
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([header, *rows])
    return path


EA_HEADER = ("Choices", "Label", "Res 1", "Pred 1", "Res 2", "Pred 2", "Res 3", "Pred 3")


def test_the_csv_files_of_2024_are_voted_on_and_averaged_over_orders(tmp_path):
    choices = str(["one", "two,\nlines", "three\u2028", "four"])
    first = csv_file(tmp_path, "m-en.csv", EA_HEADER, (choices, 2, "x", 2, "y", -1, "z", -1), (choices, 0, *"x1y1z0"))
    second = csv_file(tmp_path, "m-en1.csv", EA_HEADER, (choices, 1, *"x0y1z1"), (choices, 3, *"x3y3z3"))
    figures = evaluate_emobench([first, second], (), EmoBenchConfig(**QUICK)).figures
    assert figures["by_order"] == {"EA en": {"shipped": 50.0, "order 1": 100.0}}
    assert (figures["score"], figures["settings"]["scoring"]) == (75.0, "2024")
    assert figures["results"]["EA en"]["chance"] == 25.0


def test_a_csv_of_eu_needs_both_parts(tmp_path):
    header = ("Emo Choices", "Emo Label", "Cause Choices", "Cause Label", "Emo Res 1", "Emo Pred 1", "Cause Res 1")
    row = ("['a', 'b']", 1, "['c', 'd', 'e']", 2, "x", 1, "y")
    file = csv_file(tmp_path, "m-zh_cot2.csv", (*header, "Cause Pred 1"), (*row, 2), (*row, 0))
    figures = evaluate_emobench([file], (), EmoBenchConfig(**QUICK)).figures
    assert {name: cell["score"] for name, cell in figures["results"].items()} == {"EU zh_cot": 50.0}
    assert figures["results"]["EU zh_cot"]["chance"] == pytest.approx(100 / 6)
    incomplete = csv_file(tmp_path, "n-zh.csv", header, row)
    with pytest.raises(InputError, match="line 1: lacks the column 'Cause Pred 1'"):
        evaluate_emobench([incomplete], (), EmoBenchConfig(**QUICK))


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("m-en.csv", ("['a', 'b']", 2, *"x0x0x0"), "line 2, field 'Label': got '2'; expected 0 to 1"),
        ("m-en.csv", ("['a', 'b']", -1, *"x0x0x0"), "field 'Label': got -1"),
        ("m-en.csv", ("['a', 'b']", 0, *"x0xbx0"), "field 'Pred 2': got 'b'"),
        ("m-en.csv", ("a, b", 0, *"x0x0x0"), "field 'Choices': got 'a, b'; expected a list of choices"),
        ("m.csv", ("['a', 'b']", 0, *"x0x0x0"), "does not say its language"),
    ],
)
def test_malformed_csv_answers_are_refused(tmp_path, name, row, message):
    with pytest.raises(InputError, match=message):
        evaluate_emobench([csv_file(tmp_path, name, EA_HEADER, row)], (), EmoBenchConfig(**QUICK))


def test_a_csv_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    file = tmp_path / "m-en.csv"
    file.write_bytes(b"Choices,Label\n\xff,0\n")
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        evaluate_emobench([file], (), EmoBenchConfig(**QUICK))


# refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([ea_item("1", label="a fifth")], r"line 1, field 'label': 'a fifth' is not among the choices"),
        ([ea_item("1"), ea_item("1")], r"line 2, field 'qid': got '1', which language 'en' has already in .* line 1"),
        ([ea_item("1", choices="ab")], r"field 'choices': got a text; expected a list"),
        ([ea_item("1", choices=["a", "a"], label="a")], r"field 'choices\[1\]': repeats the choice 'a'"),
        ([ea_item("1", choices=["a"], label="a")], r"has 1 choices; expected 2 to 26"),
        ([eu_item("1", cause_label="none")], r"field 'cause_label': 'none' is not among"),
        ([ea_item("1", subject=4)], r"field 'subject': got 4; expected text"),
    ],
)
def test_items_that_cannot_be_scored_are_refused_with_file_line_and_field(tmp_path, items, message):
    with pytest.raises(InputError, match=message):
        load_items([questions_file(tmp_path, items)])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([ea("1", "A"), ea("1", "B")], "line 2, field 'qid': was answered on line 1 already"),
        ([ea("7", "A")], "field 'qid': got '7'; the questions have no EA item of language 'en' so"),
        ([ea("1", "B", label="B")], "field 'label': got 'B', but 'A' is right by the questions given"),
        ([ea("1", 3)], "field 'answer': got 3; expected text"),
        ([{"qid": "1", "lang": "en"}], "field 'answer': is missing"),
        ([eu("1", "A", "B") | {"order": -1}], "field 'order': got -1"),
    ],
)
def test_malformed_answers_are_refused_with_file_line_and_field(tmp_path, answers, message):
    with pytest.raises(InputError, match=message):
        evaluated(tmp_path, answers)


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    answers = write_lines(tmp_path / "answers.jsonl", [ea("1", "A")])
    with pytest.raises(UsageError, match="give the questions"):
        evaluate_emobench([answers])
    with pytest.raises(UsageError, match="not both kinds"):
        evaluate_emobench([answers, tmp_path / "m-en.csv"])
    with pytest.raises(InputError, match=r"neither EA\.jsonl nor EU\.jsonl"):
        load_items([tmp_path])
    with pytest.raises(MissingInputError, match="does not exist"):
        load_items([tmp_path / "EA.jsonl"])


# the published items ------------------------------------------------------------------------------------------------


def published():
    return load_items([reference("emobench")])


def held(items, task, language):
    return [item for item in items.values() if (item.task, item.language) == (task, language)]


def test_all_published_items_load():
    items = published()
    assert [sum(item.task == task for item in items.values()) for task in ("EA", "EU")] == [400, 400]


def test_published_chance_levels_by_formula():
    items = published()
    chance = {
        task: 100 * sum(item.chance for item in items.values() if item.task == task) / 400 for task in ("EA", "EU")
    }
    assert chance["EA"] == 25.0
    assert chance["EU"] == pytest.approx(3.75, abs=0.005)
    assert 100 * sum(item.chance for item in held(items, "EU", "en")) / 200 == pytest.approx(3.75)


def test_published_scores_of_constant_answers(tmp_path):
    items = published()
    expected = {("EA", "en"): ("C", 37.0), ("EU", "zh"): ("A,A", 24.5), ("EU", "en"): ("A,B", 11.5)}
    for cell, (letters, score) in expected.items():
        assert best_constant_answer(held(items, *cell)) == (letters, pytest.approx(score / 100))


def test_constant_answers_stored_as_answers_earn_the_same(tmp_path):
    letters = {("EA", "en"): "C", ("EU", "zh"): "AA", ("EU", "en"): "AB"}
    answers = [
        {"qid": qid, "lang": language, "answer": letters[task, language]}
        if task == "EA"
        else {"qid": qid, "lang": language, "emo_answer": chosen[0], "cause_answer": chosen[1]}
        for task, language, qid in published()
        if (chosen := letters.get((task, language)))
    ]
    file = write_lines(tmp_path / "answers.jsonl", answers)
    figures = evaluate_emobench([file], [reference("emobench")], EmoBenchConfig(**QUICK)).figures
    scores = {name: cell["score"] for name, cell in figures["results"].items()}
    assert scores == pytest.approx({"EA en": 37.0, "EU en": 11.5, "EU zh": 24.5})
    assert figures["always_the_same_letters"]["EA en"]["score"] == pytest.approx(37.0)
