"""EMPA, questions and plain dialogues held by a model: roles, cards, what lies beside the results, resume, refusals."""

import pyarrow.parquet as pq
import pytest
from tests.asked_models import served, settings
from tests.benchmark_files import write_lines
from tests.model_server import ModelServer
from tests.support_cards import card
from tests.support_world import world
from tests.trajectory_files import read

from dialrl.endpoint.failure import BudgetError
from dialrl.errors import FailureThresholdError, OutputExistsError, UsageError
from dialrl.evaluate.benchmark_config import QaConfig
from dialrl.evaluate.config import EmpaConfig
from dialrl.evaluate.empa import evaluate_empa
from dialrl.evaluate.empa_live import run_empa
from dialrl.evaluate.qa_live import run_qa

ROLES = {"environment_options": {"actor": {"model": "actor"}, "director": {"model": "director"}}}
JUDGE = {"judge_options": {"model": "judge"}}


@pytest.fixture
def cards(tmp_path):
    return str(write_lines(tmp_path / "cards.jsonl", [card(f"t{n}", split="test") for n in range(3)]))


def empa(server, output=None, *, overwrite=False, resume=False, **options):
    config = EmpaConfig(**settings(server, **{"max_turns": 3, **ROLES, **JUDGE, **options}))
    return run_empa(served(config, "policy"), config, output=output, overwrite=overwrite, resume=resume)


def test_the_persons_of_the_cards_are_played_directed_and_graded_in_the_loop(cards, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(world) as server:
        summary = empa(server, output, cards=cards)
    assert {body["model"] for body in server.requests} == {"policy", "actor", "director", "judge"}
    assert (summary.counts["dialogues"], summary.counts["scenarios"], summary.counts["turns"]) == (3, 3, 9)
    dialogues = tmp_path / "items.dialogues.parquet"
    assert {row["judge_status"] for row in read(dialogues)} == {"ok"}
    stored = evaluate_empa(dialogues, EmpaConfig(resamples=50))
    assert stored.figures["epm_q"] == summary.figures["epm_q"]
    rows = pq.read_table(output).to_pylist()
    assert sum(row["score"] for row in rows) / 3 == pytest.approx(summary.figures["epm_q"])
    assert [row["item"] for row in rows] == ["t0/0", "t1/0", "t2/0"]
    assert summary.figures["asked"]["judge_options"] == {"model": "judge"}


def test_our_own_cards_and_a_limit_say_what_the_number_is_not(tmp_path):
    with ModelServer(world) as server:
        summary = empa(server, limit=2, max_turns=1)
    assert summary.counts["dialogues"] == 2
    assert any("not with published ones" in warning for warning in summary.warnings)
    assert any("this is no EMPA score" in warning for warning in summary.warnings)


def test_the_settings_of_given_dialogues_name_no_model(cards, tmp_path):
    with ModelServer(world) as server:
        summary = empa(server, cards=cards)
    assert set(summary.figures["settings"]) == {
        "epsilon", "until", "stop", "confidence", "power", "resamples", "seed",
    }  # fmt: skip


def test_a_spent_budget_ends_resumably_and_no_call_is_made_twice(cards, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(world) as server:
        whole = empa(server, cards=cards)
        calls = len(server.requests)
    with ModelServer(world) as server:
        with pytest.raises(BudgetError):
            empa(server, output, cards=cards, budget_tokens=9000)
        assert 0 < len(server.requests) < calls
        summary = empa(server, output, cards=cards, resume=True)
        assert len(server.requests) == calls
    assert summary.figures["epm_q"] == whole.figures["epm_q"]
    with ModelServer(world) as server, pytest.raises(OutputExistsError):
        empa(server, output, cards=cards)


def test_dialogues_that_break_are_counted_and_too_many_end_in_failure(cards):
    def broken(body):
        return "" if body["model"] == "actor" else world(body)

    with ModelServer(broken) as server, pytest.raises(FailureThresholdError, match="3 of 3 dialogues failed"):
        empa(server, cards=cards)


def test_a_judge_that_gives_no_grades_gives_no_score(cards):
    def mute(body):
        return "no grades" if body["model"] == "judge" else world(body)

    with ModelServer(mute) as server:
        with pytest.raises(FailureThresholdError, match="9 of 9 judgements are missing"):
            empa(server, cards=cards)
        assert empa(server, cards=cards, max_missing=1.0).counts["missing_judgements"] == 9


def test_without_an_actor_nothing_is_asked(cards):
    with ModelServer(world) as server, pytest.raises(UsageError, match="actor"):
        empa(server, cards=cards, environment_options={})


# questions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def questions(tmp_path):
    asked = [
        {"id": f"q{n}", "question": f"Question {n}?", "answers": [f"right {n}"], "source": "s", "split": "test"}
        for n in range(4)
    ]
    return write_lines(tmp_path / "questions.jsonl", asked)


def answering(body):
    number = next(n for n in range(4) if f"Question {n}?" in str(body["messages"]))
    return f"<think>I know.</think><answer>right {number if number else 'wrong'}</answer>"


def test_questions_are_searched_for_and_scored_as_stored_dialogues(questions, tmp_path):
    output = tmp_path / "items.parquet"
    config = {"environment_options": {"retriever": "scripted"}, "limit": 2}
    with ModelServer(answering) as server:
        made = QaConfig(**settings(server, **config))
        summary = run_qa(served(made), questions, made, output=output)
        again = run_qa(served(made), questions, made, output=output, resume=True)
    assert len(server.requests) == 2
    assert summary.counts["questions"] == 2
    assert summary.figures["exact_match"] == 50.0
    assert again.figures["score"] == summary.figures["score"]
    rows = {row["scenario_id"]: row["answer"] for row in pq.read_table(output).to_pylist()}
    assert rows == {"q0": "right wrong", "q1": "right 1"}


def test_a_plain_dialogue_evaluation_takes_an_address_and_a_limit(cards, tmp_path):
    from dialrl.cli.app import main

    with ModelServer(world) as server:
        with pytest.raises(SystemExit) as end:
            main(
                ["evaluate", "dialogue", "--engine", "openai", "--base-url", server.url, "--model", "policy", "--limit",
                 "2", "--environment", "support", "--set", f"environment_options.cards={cards}", "--set",
                 "environment_options.actor.model=actor", "--judge", "rubric", "--set", "judge_options.model=judge",
                 "--samples", "1", "--max-turns", "2", "--set", "engine_options.mode=chat", "--json", "--no-cache",
                 "-o", str(tmp_path / "run")]
            )  # fmt: skip
        assert end.value.code in (0, None)
    assert {body["model"] for body in server.requests} == {"policy", "actor", "judge"}
    assert len({row["scenario_id"] for row in read(tmp_path / "run" / "rollout.parquet")}) == 2
