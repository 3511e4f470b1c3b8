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

from dialrl.cli.app import main


def run(capsys, *arguments):
    """Exit code, stdout and stderr of ``dialrl ARGUMENTS``."""
    try:
        main([str(argument) for argument in arguments])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def eqbench(tmp_path):
    questions = eqbench_questions(tmp_path, (0, 6, 0, 7))
    answers = eqbench_answers(tmp_path, {"1": first_pass(0, 6, 0, 2)})
    return ("evaluate", "eqbench", "--answers", answers, "--questions", questions, "--resamples", 20)


def test_json_is_one_object_with_the_score_first(capsys, eqbench):
    code, out, _ = run(capsys, *eqbench, "--json")
    assert code == 0
    shown = json.loads(out)
    assert list(shown)[:3] == ["stage", "output", "score"]
    assert shown["score"] == 100 - 7.477 * 5


def test_options_reach_the_score(capsys, eqbench):
    _, out, _ = run(capsys, *eqbench, "--boundary", "<= 5", "--aggregation", "lm-eval", "--from", "answers", "--json")
    settings = json.loads(out)["settings"]
    assert (settings["boundary"], settings["aggregation"], settings["source"]) == ("<=5", "lm-eval", "answers")
    code, _, err = run(capsys, *eqbench, "--boundary", "<6")
    assert code == 2
    assert "expected '<5'" in err
    code, out, _ = run(capsys, "evaluate", "eqbench", "--dry-run", "--from", "text", "--no-revision")
    assert code == 0
    assert "source: text\nrevision: false" in out


def test_an_output_is_written_once(capsys, eqbench, tmp_path):
    output = tmp_path / "items.parquet"
    assert run(capsys, *eqbench, "-o", output)[0] == 0
    code, _, err = run(capsys, *eqbench, "-o", output)
    assert (code, "exists" in err) == (2, True)
    assert run(capsys, *eqbench, "-o", output, "--overwrite")[0] == 0


def test_emobench_takes_several_files(capsys, tmp_path):
    questions = [write_lines(tmp_path / f"{q}.jsonl", [ea_item(q, 1)]) for q in "12"]
    answers = write_lines(tmp_path / "answers.jsonl", [{"qid": q, "lang": "en", "answer": "B"} for q in "12"])
    asked = [word for path in questions for word in ("--questions", path)]
    code, out, _ = run(capsys, "evaluate", "emobench", "--answers", answers, *asked, "--tasks", "EA", "--json")
    assert (code, json.loads(out)["score"]) == (0, 100.0)


def test_sage_counts_success_and_failure(capsys, tmp_path):
    answers = write_lines(tmp_path / "c.jsonl", [conversation("a", 40, 30, 20, 10, 0)])
    code, out, _ = run(capsys, "evaluate", "sage", "--answers", answers, "--json")
    shown = json.loads(out)
    assert (code, shown["score"], shown["success"], shown["failure"]) == (0, 0.0, 0, 1)


@pytest.mark.parametrize("kind", ["eqbench", "emobench", "sage"])
def test_a_missing_file_is_wrong_usage_and_says_which(capsys, kind):
    code, _, err = run(capsys, "evaluate", kind)
    assert (code, "--answers" in err) == (2, True)


@pytest.mark.parametrize("kind", ["eqbench", "emobench", "sage"])
def test_there_is_no_policy_to_run_yet(capsys, kind):
    code, _, err = run(capsys, "evaluate", kind, "--policy", "somewhere")
    assert (code, "No such option" in err) == (2, True)


def test_people_see_tables(capsys, eqbench):
    code, out, _ = run(capsys, *eqbench)
    assert code == 0
    assert "evaluate eqbench" in out
    assert "boundary" in out
