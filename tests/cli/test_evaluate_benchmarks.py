"""The benchmark commands: one JSON object with the score first, options by their names, clear refusals."""

import json

import pytest
from tests.benchmark_files import (
    conversation,
    ea_item,
    eqbench_answers,
    eqbench_questions,
    first_pass,
    write_lines,
)
from tests.model_server import ModelServer
from tests.support_world import grades
from tests.trajectory_files import row, write


@pytest.fixture
def eqbench(tmp_path):
    questions = eqbench_questions(tmp_path, (0, 6, 0, 7))
    answers = eqbench_answers(tmp_path, {"1": first_pass(0, 6, 0, 2)})
    return ("evaluate", "eqbench", "--answers", answers, "--questions", questions, "--resamples", 20)


def test_json_is_one_object_with_the_score_first(run, eqbench):
    shown = run(*eqbench, "--json").json
    assert list(shown)[:3] == ["stage", "output", "score"]
    assert shown["score"] == 100 - 7.477 * 5


def test_options_reach_the_score(run, eqbench):
    settings = run(*eqbench, "--boundary", "<= 5", "--aggregation", "lm-eval", "--from", "answers", "--json").json
    settings = settings["settings"]
    assert (settings["boundary"], settings["aggregation"], settings["source"]) == ("<=5", "lm-eval", "answers")
    refused = run(*eqbench, "--boundary", "<6")
    assert (refused.code, "expected '<5'" in refused.err) == (2, True)
    resolved = run("evaluate", "eqbench", "--dry-run", "--from", "text", "--no-revision")
    assert (resolved.code, "source: text\nrevision: false" in resolved.out) == (0, True)


def test_an_output_is_written_once(run, eqbench, tmp_path):
    output = tmp_path / "items.parquet"
    assert run(*eqbench, "-o", output).code == 0
    again = run(*eqbench, "-o", output)
    assert (again.code, "exists" in again.err) == (2, True)
    assert run(*eqbench, "-o", output, "--overwrite").code == 0


def test_emobench_takes_several_files(run, tmp_path):
    questions = [write_lines(tmp_path / f"{q}.jsonl", [ea_item(q, 1)]) for q in "12"]
    answers = write_lines(tmp_path / "answers.jsonl", [{"qid": q, "lang": "en", "answer": "B"} for q in "12"])
    asked = [word for path in questions for word in ("--questions", path)]
    assert run("evaluate", "emobench", "--answers", answers, *asked, "--tasks", "EA", "--json").json["score"] == 100.0


def test_sage_counts_success_and_failure(run, tmp_path):
    answers = write_lines(tmp_path / "c.jsonl", [conversation("a", 40, 30, 20, 10, 0)])
    shown = run("evaluate", "sage", "--answers", answers, "--json").json
    assert (shown["score"], shown["success"], shown["failure"]) == (0.0, 0, 1)


@pytest.mark.parametrize("kind", ["eqbench", "emobench", "sage"])
def test_a_missing_file_is_wrong_usage_and_says_which(run, kind):
    ended = run("evaluate", kind)
    assert (ended.code, "--answers" in ended.err) == (2, True)


def test_a_model_is_asked_over_an_address(run, tmp_path):
    questions = eqbench_questions(tmp_path, (0, 6, 0, 7))
    said = "Calm: 0\nProud: 6\nSad: 0\nTense: 7"
    with ModelServer(lambda body: said) as server:
        asked = ("evaluate", "eqbench", "--questions", questions, "--base-url", server.url, "--model", "m")
        shown = run(*asked, "--resamples", 20, "--json").json
    assert (shown["score"], shown["asked"]["engine"], shown["asked"]["policy"]) == (100.0, "openai", "endpoint:m")
    assert server.requests[0]["model"] == "m"


def test_a_model_or_stored_answers_not_both_and_an_engine_names_its_model(run, eqbench):
    both = run(*eqbench, "--model", "m")
    assert (both.code, "not both" in both.err) == (2, True)
    half = run(*eqbench, "--engine", "openai")
    assert (half.code, "--model" in half.err) == (2, True)


def test_people_see_tables(run, eqbench):
    ended = run(*eqbench)
    assert (ended.code, "evaluate eqbench" in ended.out, "boundary" in ended.out) == (0, True, True)


def test_agreement_compares_files(run, tmp_path):
    files = [write(tmp_path / f"{name}.parquet", graded()) for name in "ab"]
    shown = run("evaluate", "agreement", *files, "--resamples", 20, "--json").json
    assert (shown["alpha"], list(shown["pairs"])) == (1.0, ["a | b"])


def graded():
    """Three turns judged on one indicator."""
    grades = [{"indicator": "C.Prog", "level": level, "evidence": None, "reasoning": None} for level in range(3)]
    return [row(f"g{place}", grades=[grade], increment=[1.0, 0.0, 0.0]) for place, grade in enumerate(grades)]


def test_compare_pairs_two_results_files(run, eqbench, tmp_path):
    files = [tmp_path / f"{name}.parquet" for name in "ab"]
    for file, boundary in zip(files, ("<5", "<=5"), strict=True):
        assert run(*eqbench, "--boundary", boundary, "-o", file).code == 0
    shown = run("compare", *files, "--resamples", 20, "--json").json
    assert shown["differences"]["score"]["b - a"]["difference"] > 0


def test_a_judge_that_does_not_pass_is_shown_and_ends_with_1(run):
    with ModelServer(grades) as server:
        tried = ("evaluate", "judge", "--judge-model", "j", "--base-url", server.url, "--resamples", 20, "--repeats", 1)
        ended = run(*tried, "--require", "alpha>=0.9", "--require", "ranking>=0", "--json")
        assert (ended.code, json.loads(ended.out)["passed"]) == (1, False)
        assert "does not pass: alpha>=0.9" in ended.err
        assert run(*tried, "--require", "ranking>=0", "--json").json["passed"] is True
    unknown = run(*tried, "--require", "beauty>=1")
    assert (unknown.code, "no measure 'beauty'" in unknown.err) == (2, True)
