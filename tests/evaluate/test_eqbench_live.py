"""EQ-Bench asked of a model: prompts, retries, resume, what failed, and scores made again from the answers kept."""

import json
import subprocess
import sys
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest
from tests.asked_models import prompt_of, served, settings
from tests.benchmark_files import EMOTIONS, eqbench_questions
from tests.model_server import ModelServer

from dialrl.endpoint.failure import BudgetError
from dialrl.errors import FailureThresholdError, InputError, OutputExistsError, UsageError
from dialrl.evaluate.benchmark_config import EqBenchConfig
from dialrl.evaluate.eqbench import evaluate_eqbench
from dialrl.evaluate.eqbench_live import run_eqbench
from dialrl.evaluate.respondent import open_respondent_policy

REFERENCES = ((0, 6, 0, 7), (1, 1, 1, 9), (5, 5, 5, 5))
GOOD = "\n".join(f"{name}: {level}" for name, level in zip(EMOTIONS, (0, 6, 0, 7), strict=True))
TWO_BLOCKS = f"First pass scores:\n{GOOD}\n\nCritique: too sure.\n\nRevised scores:\n{GOOD}\n"


@pytest.fixture
def questions(tmp_path):
    return eqbench_questions(tmp_path, *REFERENCES)


def run(server, questions, output=None, *, overwrite=False, resume=False, **options):
    config = EqBenchConfig(**settings(server, **options))
    return run_eqbench(served(config), questions, config, output=output, overwrite=overwrite, resume=resume)


def test_every_question_is_asked_once_in_the_prompt_without_revision(questions):
    with ModelServer(lambda body: GOOD) as server:
        summary = run(server, questions)
    assert len(server.requests) == 3
    assert {body["temperature"] for body in server.requests} == {0.01}
    assert all("Your answer:" in prompt_of(body) and "critique" not in prompt_of(body) for body in server.requests)
    first = 10.0
    assert summary.counts["parsed"] == 3
    assert summary.figures["score"] == pytest.approx(
        10 * (first + (10 - 0.7477 * _cost(1, 5, 1, 2)) + (10 - 0.7477 * _cost(5, 1, 5, 2))) / 3
    )
    assert summary.figures["asked"]["policy"] == "endpoint:served"
    assert summary.figures["calls"]["policy"]["calls"] == 3


def _cost(*distances):
    from dialrl.evaluate.eqbench_score import difference

    return sum(map(difference, distances))


def test_with_revision_the_prompt_and_the_reading_have_two_blocks(questions):
    with ModelServer(lambda body: TWO_BLOCKS) as server:
        summary = run(server, questions, revision=True)
    assert "Revised scores:" in prompt_of(server.requests[0])
    assert summary.figures["iterations"]["1"]["block"] == "revised"


def test_an_unread_answer_is_asked_again_warmer_and_at_most_three_times(questions):
    with ModelServer(lambda body: GOOD if body["temperature"] > 0.3 else "I cannot say.") as server:
        summary = run(server, questions)
    assert Counter(round(body["temperature"], 2) for body in server.requests) == {0.01: 3, 0.16: 3, 0.31: 3}
    assert summary.counts["parsed"] == 3
    with ModelServer(lambda body: "I cannot say.") as server:
        summary = run(server, questions)
    assert (len(server.requests), summary.counts["unparsed"], summary.figures["failed"]) == (9, 3, True)


def test_lm_eval_asks_once_and_greedily(questions):
    with ModelServer(lambda body: "I cannot say.") as server:
        summary = run(server, questions, aggregation="lm-eval")
    assert [body["temperature"] for body in server.requests] == [0.0, 0.0, 0.0]
    assert summary.figures["score"] == 0.0


def test_iterations_are_asked_with_seeds_of_their_own(questions):
    with ModelServer(lambda body: GOOD) as server:
        summary = run(server, questions, iterations=2)
    assert len({(prompt_of(body), body["seed"]) for body in server.requests}) == 6
    assert list(summary.figures["iterations"]) == ["1", "2"]


def test_the_limit_takes_the_first_questions_and_says_how_little_that_means(questions):
    with ModelServer(lambda body: GOOD) as server:
        summary = run(server, questions, limit=2)
    assert len(server.requests) == 2
    assert any("Only 2 questions" in warning for warning in summary.warnings)


def test_answers_are_kept_raw_and_can_be_scored_again(questions, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(lambda body: "<think>Calm: 9</think>" + GOOD) as server:
        summary = run(server, questions, output)
    rows = pq.read_table(output).to_pylist()
    assert [row["answer"] for row in rows] == ["<think>Calm: 9</think>" + GOOD] * 3
    assert {(row["tries"], row["finish_reason"], row["status"]) for row in rows} == {(1, "stop", "scored")}
    config = EqBenchConfig(resamples=50)
    again = evaluate_eqbench(output, questions, config)
    assert again.figures["score"] == summary.figures["score"]
    assert (
        evaluate_eqbench(output, questions, EqBenchConfig(resamples=50, boundary="<=5")).figures["score"]
        != (summary.figures["score"])
    )
    assert not list(tmp_path.glob(".*"))


def test_results_of_stored_answers_hold_no_answers_to_score(questions, tmp_path):
    from tests.benchmark_files import eqbench_answers, first_pass

    answers = eqbench_answers(tmp_path, {"1": first_pass(0, 6, 0, 2)})
    evaluate_eqbench(answers, questions, EqBenchConfig(resamples=20), output=tmp_path / "scores.parquet")
    with pytest.raises(InputError, match="and not the answers"):
        evaluate_eqbench(tmp_path / "scores.parquet", questions, EqBenchConfig(resamples=20))


def test_a_spent_budget_ends_resumably_and_nothing_is_asked_twice(questions, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(lambda body: GOOD) as server:
        with pytest.raises(BudgetError, match="--resume"):
            run(server, questions, output, budget_tokens=1300, concurrency=1)
        before = len(server.requests)
        assert 0 < before < 3
        assert not output.exists()
        with pytest.raises(OutputExistsError, match="--resume"):
            run(server, questions, output)
        summary = run(server, questions, output, resume=True)
    assert (len(server.requests), summary.counts["parsed"]) == (3, 3)


def test_whole_results_are_left_alone_and_other_settings_refused(questions, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(lambda body: GOOD) as server:
        run(server, questions, output)
        again = run(server, questions, output, resume=True)
        assert (len(server.requests), again.counts["parsed"]) == (3, 3)
        with pytest.raises(UsageError, match="limit: None -> 2"):
            run(server, questions, output, resume=True, limit=2)
        with pytest.raises(OutputExistsError):
            run(server, questions, output)


def test_a_question_whose_calls_fail_has_no_answer_and_is_asked_again_on_resume(questions, tmp_path):
    output = tmp_path / "items.parquet"
    hopeless = _seeds_of_the_first_question()
    with ModelServer(lambda body: GOOD, faults=lambda n, body: "500" if body["seed"] in hopeless else None) as server:
        with pytest.raises(FailureThresholdError, match="1 of 3 items got no answer"):
            run(server, questions, output)
        rows = {row["item"]: row for row in pq.read_table(output).to_pylist()}
        assert (rows["1"]["status"], rows["1"]["score"], rows["2"]["status"]) == ("failed", None, "scored")
        assert rows["1"]["error"].startswith("http_500")
        hopeless.clear()
        asked = len(server.requests)
        summary = run(server, questions, output, resume=True)
    assert len(server.requests) == asked + 1
    assert (summary.counts["parsed"], "failed_calls" in summary.counts) == (3, False)


def _seeds_of_the_first_question():
    from dialrl.seeds import seed_for

    return {seed_for(0, 1, "1", 0, 0, "policy", attempt) & 0x7FFFFFFF for attempt in range(3)}


def test_failed_calls_do_not_count_as_unparsed_in_lm_eval(questions):
    seeds = _seeds_of_the_first_question()
    faults = lambda number, body: "500" if body["seed"] in seeds else None  # noqa: E731
    with ModelServer(lambda body: GOOD, faults=faults) as server:
        summary = run(server, questions, aggregation="lm-eval", max_failed=1.0)
    assert summary.counts["failed_calls"] == 1
    assert any("says nothing about the model" in warning for warning in summary.warnings)
    with ModelServer(lambda body: GOOD) as server:
        assert run(server, questions, aggregation="lm-eval").figures["score"] > summary.figures["score"]


def test_a_faulty_server_changes_no_score(questions):
    with ModelServer(lambda body: GOOD, faults={0: "429", 1: "truncated_json", 2: "cut"}) as server:
        shaken = run(server, questions, concurrency=1)
    with ModelServer(lambda body: GOOD) as server:
        assert run(server, questions).figures["score"] == shaken.figures["score"]


def test_an_embedded_engine_answers_in_blocks_and_goes_on_from_whole_ones(policy, questions, tmp_path, monkeypatch):
    config = EqBenchConfig(engine="hf", max_reply_tokens=4, tries=1, block_dialogues=2, resamples=20, max_failed=1.0)
    output = tmp_path / "items.parquet"
    opened = open_respondent_policy(policy, config)
    drawn = []
    whole = opened.engine.generate_block

    def stumbling(requests, sampling):
        drawn.append(len(requests))
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return whole(requests, sampling)

    monkeypatch.setattr(opened.engine, "generate_block", stumbling)
    with pytest.raises(KeyboardInterrupt):
        run_eqbench(opened, questions, config, output=output)
    run_eqbench(opened, questions, config, output=output, resume=True)
    assert drawn == [2, 1, 1]
    unbroken = tmp_path / "unbroken.parquet"
    run_eqbench(open_respondent_policy(policy, config), questions, config, output=unbroken)
    assert pq.read_table(output).to_pylist() == pq.read_table(unbroken).to_pylist()


def test_a_killed_evaluation_goes_on_and_asks_nothing_that_was_answered_again(questions, tmp_path):
    questions = eqbench_questions(tmp_path, *[(0, 6, 0, number) for number in range(1, 13)])
    output = tmp_path / "items.parquet"
    with ModelServer(lambda body: GOOD, latency_seconds=0.15) as server:
        asked = (
            "evaluate",
            "eqbench",
            "--questions",
            questions,
            "--base-url",
            server.url,
            "--model",
            "m",
            "-o",
            output,
        )
        program = "import sys; from dialrl.cli.app import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, *map(str, asked), "--concurrency", "2", "--resamples", "20", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(server.answered) < 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.wait()
        before = [prompt_of(body) + str(body["seed"]) for body in server.answered]
        assert 5 <= len(before) < 12
        assert not output.exists()
        ended = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120, check=False)
        assert (ended.returncode, json.loads(ended.stdout)["counts"]["parsed"]) == (0, 12)
    # An answer on its way when the process died is lost; every other was kept.
    assert len(server.requests) <= 12 + 2


def test_a_model_of_this_machine_can_be_asked_by_its_directory(policy, questions):
    config = EqBenchConfig(
        engine="openai", base_url=f"hf:{policy}", max_reply_tokens=4, tries=1, limit=2, resamples=20, max_failed=0
    )
    summary = run_eqbench(served(config, str(policy)), questions, config)
    assert (summary.counts["questions"], summary.figures["calls"]["policy"]["calls"]) == (2, 2)
