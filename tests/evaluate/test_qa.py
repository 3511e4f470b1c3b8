"""Answers to questions: both F1 definitions and exact match by source, tries, missing answers, the guard, files."""

import json

import pytest
from tests.reference_data import reference
from tests.trajectory_files import row, write

from dialrl.errors import InputError, MissingInputError
from dialrl.evaluate.benchmark_config import QaConfig
from dialrl.evaluate.item_results import read_item_results
from dialrl.evaluate.qa import evaluate_qa
from dialrl.scenario.questions import load_questions

QUICK = QaConfig(resamples=50)
QUESTIONS = [
    {"id": "n1", "question": "Q", "answers": ["New York"], "source": "nq"},
    {"id": "n2", "question": "Q", "answers": ["Wool merchant.", "Ann"], "source": "nq"},
    {"id": "t1", "question": "Q", "answers": ["the end"], "source": "tq"},
]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def questions(tmp_path):
    return lines(tmp_path / "questions.jsonl", *QUESTIONS)


def scored(tmp_path, questions, *answers, **more):
    stored = [{"id": name, "answer": text} for name, text in answers]
    return evaluate_qa(lines(tmp_path / "answers.jsonl", *stored), questions, more.pop("config", QUICK), **more)


def test_three_figures_by_source_and_their_mean(tmp_path, questions):
    answers = (("n1", "New York New York"), ("n2", "wool merchant and trader"), ("t1", "End"))
    figures = scored(tmp_path, questions, *answers).figures
    nq, tq = (figures["by_source"][name] for name in ("nq", "tq"))
    assert [nq[m] for m in ("word_set_f1", "squad_f1", "exact_match")] == pytest.approx([250 / 3, 200 / 3, 0.0])
    assert [tq[m] for m in ("word_set_f1", "squad_f1", "exact_match")] == pytest.approx([200 / 3, 100.0, 100.0])
    assert figures["score"] == pytest.approx((250 / 3 + 200 / 3) / 2)  # sources weigh the same
    assert figures["over_all_answers"]["word_set_f1"] == pytest.approx((100 + 200 / 3 + 200 / 3) / 3)
    assert figures["intervals"]["word_set_f1"]["low"] <= figures["score"] <= figures["intervals"]["word_set_f1"]["high"]


def test_perfect_answers_score_100(tmp_path, questions):
    figures = scored(tmp_path, questions, ("n1", "new york"), ("n2", "ANN"), ("t1", "the end")).figures
    assert (figures["score"], figures["squad_f1"], figures["exact_match"]) == (100.0, 100.0, 100.0)


def test_no_answer_counts_0_and_is_counted(tmp_path, questions):
    summary = scored(tmp_path, questions, ("n1", "New York"), ("n2", None))
    assert summary.figures["by_source"]["nq"]["word_set_f1"] == 50.0
    assert summary.figures["score"] == 25.0
    assert (summary.counts["answers"], summary.counts["without_answer"]) == (1, 2)
    assert "2 tries have no answer; they count 0." in summary.warnings


def test_several_tries_count_each(tmp_path, questions):
    answers = (("n1", "New York"), ("n1", "x"), ("n2", "Ann"), ("t1", "the end"))
    figures = scored(tmp_path, questions, *answers).figures
    assert (figures["by_source"]["nq"]["tries"], figures["by_source"]["nq"]["word_set_f1"]) == (
        3,
        pytest.approx(200 / 3),
    )


def test_dialogues_are_read_by_their_last_reply(tmp_path, questions):
    rows = [
        row("n1", turn=0, scenario_id="n1", reply="<answer>trap</answer>", end_reason=None),
        row("n1", turn=1, scenario_id="n1", reply="<answer>New York</answer>", end_reason="answer"),
        row("n2", scenario_id="n2", reply="<answer>Ann</answer>", end_reason="turn_limit"),
        row("t1", scenario_id="t1", reply="<think>x</think><answer>the end</answer>", end_reason="answer"),
    ]
    summary = evaluate_qa(write(tmp_path / "r.parquet", rows), questions, QUICK)
    assert (summary.counts["answers"], summary.counts["without_answer"]) == (2, 1)
    assert summary.figures["by_source"]["nq"]["exact_match"] == 50.0


def test_a_split_of_the_questions_is_scored_alone(tmp_path):
    path = lines(tmp_path / "q.jsonl", {**QUESTIONS[0], "split": "train"}, QUESTIONS[2])
    only = {"config": QaConfig(resamples=5, split="test")}
    assert scored(tmp_path, path, ("t1", "the end"), **only).counts["questions"] == 1
    with pytest.raises(InputError, match="'n1', which is none of the 1 questions"):
        scored(tmp_path, path, ("n1", "New York"), config=QaConfig(resamples=5, split="test"))
    with pytest.raises(InputError, match="no questions of the split 'dev'; it has: test, train"):
        scored(tmp_path, path, ("t1", "x"), config=QaConfig(split="dev"))


@pytest.mark.parametrize("kind", ["questions", "dialogues"])
def test_ids_seen_in_training_are_refused(tmp_path, questions, kind):
    seen = (
        lines(tmp_path / "train.jsonl", QUESTIONS[1], {"id": "x", "question": "Q", "answers": ["a"]})
        if kind == "questions"
        else write(tmp_path / "train.parquet", [row("n2", scenario_id="n2", reply="x")])
    )
    with pytest.raises(InputError, match=r"1 of 3 questions were seen in training .*the first is 'n2'"):
        scored(tmp_path, questions, ("n1", "x"), training=[seen])


def test_the_guard_says_what_it_checked(tmp_path, questions):
    other = lines(tmp_path / "train.jsonl", {"id": "x", "question": "Q", "answers": ["a"]})
    assert scored(tmp_path, questions, ("n1", "x"), training=[other]).counts["training_ids_checked"] == 1
    assert any("is not checked" in sentence for sentence in scored(tmp_path, questions, ("n1", "x")).warnings)


def test_rows_are_written_for_comparing(tmp_path, questions):
    output = tmp_path / "items.parquet"
    scored(tmp_path, questions, ("n1", "New York New York"), output=output, config=QaConfig(resamples=5, limit=1))
    name, table = read_item_results(output)
    (one,) = table.to_pylist()
    assert (name, one["scenario_id"], one["source"], one["score"], one["answer"]) == (
        "qa", "n1", "nq", 100.0, "New York New York",
    )  # fmt: skip
    assert one["squad_f1"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"id": "z", "answer": "x"}, "'z', which is none of the 3 questions"),
        ({"id": "n1"}, "line 1 is no answer"),
        ({"answer": "x"}, "line 1 is no answer"),
        ({"id": "n1", "answer": 7}, "the answer is 7"),
    ],
)
def test_what_is_no_answer_is_refused(tmp_path, questions, answer, fault):
    with pytest.raises(InputError, match=fault):
        evaluate_qa(lines(tmp_path / "a.jsonl", answer), questions, QUICK)


def test_files_that_are_not_there_and_questions_without_gold_are_refused(tmp_path, questions):
    with pytest.raises(MissingInputError):
        evaluate_qa(tmp_path / "none.jsonl", questions, QUICK)
    with pytest.raises(InputError, match="holds no answers"):
        evaluate_qa(lines(tmp_path / "a.jsonl"), questions, QUICK)
    bare = lines(tmp_path / "q.jsonl", {"id": "n1", "question": "Q"})
    with pytest.raises(InputError, match="no accepted answer"):
        scored(tmp_path, bare, ("n1", "x"))


def test_all_published_questions_with_their_own_answers_score_100(tmp_path):
    path = reference("qa") / "test.parquet"
    answers = [(question.id, question.answers[-1]) for question in load_questions(path)]
    figures = scored(tmp_path, path, *answers).figures
    assert len(answers) == 3197
    for cell in (figures, figures["over_all_answers"], *figures["by_source"].values()):
        assert [cell[name] for name in ("word_set_f1", "squad_f1", "exact_match")] == [100.0] * 3
