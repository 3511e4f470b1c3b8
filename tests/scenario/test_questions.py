"""Questions from the shapes they are published in, and the command that brings them into one."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.reference_data import reference

from dialrl.errors import InputError, MissingInputError, OutputExistsError
from dialrl.scenario.config import ImportQaConfig
from dialrl.scenario.import_questions import import_qa
from dialrl.scenario.questions import Question, load_questions

VERL = {
    "data_source": "nq",
    "prompt": [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who?"}],
    "reward_model": {"ground_truth": "Ann<|answer_split|>Anna"},
    "extra_info": {"index": "nq_1", "split": "dev"},
}
PLAIN = {"id": 7, "question": "Where?", "answers": ["here", " "], "source": "own", "split": "train"}


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "question"),
    [
        (VERL, Question("nq_1", "Who?", ("Ann", "Anna"), "nq", "dev")),
        (PLAIN, Question("7", "Where?", ("here",), "own", "train")),
        ({"id": "a", "question": "Q", "golden_answers": ["x"]}, Question("a", "Q", ("x",))),
        ({"id": "a", "question": "Q", "reward_model": {"ground_truth": {"target": ["x"]}}}, Question("a", "Q", ("x",))),
        ({"qid": "a", "prompt": "Q", "answer": "x"}, Question("a", "Q", ("x",))),
        ({"id": "a", "question": "Q"}, Question("a", "Q", ())),
    ],
)
def test_each_shape_is_read(tmp_path, row, question):
    assert load_questions(lines(tmp_path / "q.jsonl", row)) == [question]
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "q.parquet")
    assert load_questions(tmp_path / "q.parquet") == [question]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"question": "Q"}], "line 1 has no id"),
        ([PLAIN, {"id": "b", "question": " "}], "line 2 has no question"),
        ([{"id": "b", "question": "Q", "answers": [1]}], r"the answers are \[1\]"),
        ([PLAIN, PLAIN], "line 2: id '7' stands at .*line 1 already"),
        ([], "holds no questions"),
    ],
)
def test_what_is_no_question_is_refused_with_its_place(tmp_path, rows, fault):
    with pytest.raises(InputError, match=fault):
        load_questions(lines(tmp_path / "q.jsonl", *rows))


def test_a_missing_and_a_broken_file_are_refused(tmp_path):
    with pytest.raises(MissingInputError):
        load_questions(tmp_path / "q.jsonl")
    (tmp_path / "q.parquet").write_text("no")
    with pytest.raises(InputError, match="no Parquet file"):
        load_questions(tmp_path / "q.parquet")


def test_import_writes_one_form_and_counts_by_source(tmp_path):
    inputs = [lines(tmp_path / "a.jsonl", VERL), lines(tmp_path / "b.jsonl", PLAIN)]
    summary = import_qa(inputs, tmp_path / "out.jsonl", ImportQaConfig(split="train"))
    assert summary.counts == {"questions": 2, "answers": 3, "unanswered_left_out": 0}
    assert summary.figures == {"questions_by_source": {"nq": 1, "own": 1}}
    assert [question.split for question in load_questions(tmp_path / "out.jsonl")] == ["train", "train"]
    with pytest.raises(OutputExistsError):
        import_qa(inputs, tmp_path / "out.jsonl")


def test_a_question_without_gold_is_refused_or_left_out_and_counted(tmp_path):
    source = [lines(tmp_path / "a.jsonl", PLAIN, {"id": "b", "question": "Q"})]
    with pytest.raises(InputError, match=r"1 of 2 questions have no accepted answer, the first is 'b'.*--skip-unans"):
        import_qa(source, tmp_path / "out.jsonl")
    summary = import_qa(source, tmp_path / "out.jsonl", ImportQaConfig(skip_unanswered=True))
    assert (summary.counts["questions"], summary.counts["unanswered_left_out"]) == (1, 1)


def test_an_id_in_two_files_is_refused(tmp_path):
    inputs = [lines(tmp_path / "a.jsonl", PLAIN), lines(tmp_path / "b.jsonl", PLAIN)]
    with pytest.raises(InputError, match="'7' stands in"):
        import_qa(inputs, tmp_path / "out.jsonl")


def test_all_published_questions_import_with_their_counts_by_source(tmp_path):
    summary = import_qa([reference("qa") / "test.parquet"], tmp_path / "qa.jsonl")
    assert summary.counts["questions"] == 3197
    by_source = summary.figures["questions_by_source"]
    large = dict.fromkeys(("nq", "tq", "hotpotqa", "2wiki", "musique", "popqa"), 512)
    assert by_source == {**large, "Bamboogle": 125}
    again = load_questions(tmp_path / "qa.jsonl")
    assert again == load_questions(reference("qa") / "test.parquet")
    assert Counter(question.source for question in again) == Counter(by_source)
