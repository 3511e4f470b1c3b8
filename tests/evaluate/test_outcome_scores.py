"""Dialogues without positions are scored by their outcome."""

import pytest
from tests.trajectory_files import row, write

from dialrl.errors import InputError
from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.dialogue import evaluate_dialogues, mean_scores


def dialogue(name, outcome, turns=1, environment="search", **more):
    rows = [row(name, turn=turn, scenario_id=name, environment=environment, status="ok") for turn in range(turns)]
    rows[-1].update(outcome=outcome, end_reason="answer" if outcome else "turn_limit", **more)
    return rows


ROWS = [*dialogue("a", 1.0, 2), *dialogue("b", 0.0), *dialogue("c", 0.5), *dialogue("d", None)]


def test_the_score_of_search_is_the_mean_outcome(tmp_path):
    path = write(tmp_path / "r.parquet", ROWS)
    summary = evaluate_dialogues(path, DialogueConfig(resamples=100))
    assert summary.figures["score"] == pytest.approx(0.5)
    assert (summary.figures["measure"], summary.figures["mean_turns"]) == ("outcome", pytest.approx(4 / 3))
    assert summary.figures["endings"] == {"answer": 2, "turn_limit": 1}
    assert (summary.counts["dialogues"], summary.counts["unjudged_dialogues"]) == (3, 1)
    assert "success_rate" not in summary.figures


def test_a_broken_dialogue_is_counted_and_in_no_mean(tmp_path):
    broken = dialogue("e", None)
    broken[-1].update(status="error", end_reason="error")
    counts = evaluate_dialogues(write(tmp_path / "r.parquet", [*ROWS, *broken]), DialogueConfig(resamples=10)).counts
    assert (counts["broken_dialogues"], counts["dialogues"]) == (1, 3)


def test_beliefs_alone_make_a_judged_file_of_any_environment(tmp_path):
    rows = dialogue("a", 1.0, environment="other", belief_before=-1.0, belief_after=-0.5)
    assert mean_scores(write(tmp_path / "j.parquet", rows), until="stop") == {"score": 1.0, "mean_turns": 1.0}


def test_ungraded_dialogues_of_other_environments_are_still_refused(tmp_path):
    path = write(tmp_path / "r.parquet", dialogue("a", 1.0, environment="demo"))
    with pytest.raises(InputError, match="has been through 'rollout'"):
        evaluate_dialogues(path)
