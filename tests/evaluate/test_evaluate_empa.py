"""evaluate empa: what is scored, what is left out and said, and the published scores of four models."""

import csv
import json

import pytest
from tests.published_dialogues import COLLAPSE, SUCCESS, TURN_LIMIT, published, write_folder
from tests.reference_data import reference

from dialrl.errors import InputError
from dialrl.evaluate.config import EmpaConfig
from dialrl.evaluate.empa import evaluate_empa
from dialrl.state.rules import StopRules
from dialrl.trajectory.importers.config import ImportTurnsConfig
from dialrl.trajectory.importers.empa import import_empa
from dialrl.trajectory.importers.turns import import_turns

GOOD = {"C.Prog": 1, "A.Prog": 1, "P.Prog": 1}
BAD = {"C.Neg": -1, "A.Neg": -1, "P.Neg": -1}
QUICK = EmpaConfig(resamples=200)


def judged(tmp_path, *dialogues, name="model"):
    output = tmp_path / f"{name}.parquet"
    import_empa([write_folder(tmp_path / name, *dialogues)], output, overwrite=True)
    return output


def logged(tmp_path, turns):
    log, output = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    log.write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
    import_turns(log, output, ImportTurnsConfig(), overwrite=True)
    return output


def test_one_good_dialogue_by_hand(tmp_path):
    # deficit (-2, -2, -2), two turns of (1, 1, 1): d0 = sqrt 3, dT = 0, E = |P_0| = sqrt 12, S = 6, N = 3
    file = judged(tmp_path, published([GOOD, GOOD], deficit=(-2, -2, -2), reason=SUCCESS))
    figures = evaluate_empa(file, QUICK).figures
    assert figures["indices"] == pytest.approx(
        {
            "RDI": 100,
            "Etot": 100 * 2 / 1.2,
            "Snet": 100 * 6 / (1.5 * 3**0.5),
            "Rho": 100 * 3**0.5 / 2.5,
            "Sproj": 100 * (12**0.5 / 3) / 2.5,
            "Tau": 100,
            "Rpos": 100 * 2 / 3,
            "Align": 100 * (2 / 3 + 1) / 2,
            "Pen": 100,
        }
    )
    assert (figures["success"], figures["dialogues"], figures["mean_turns"]) == (1, 1, 2)


def test_summary_has_the_figures_the_counts_and_the_known_flaws(tmp_path):
    dialogues = [
        published([GOOD] * 3, script="script_1", reason=SUCCESS, deficit=(-3, -3, -3)),
        published([BAD] * 3, script="script_2", reason=COLLAPSE, deficit=(-3, -3, -3)),
        published([GOOD, None], script="script_3", reason=TURN_LIMIT, deficit=(-3, -3, -3)),
    ]
    shown = evaluate_empa(judged(tmp_path, *dialogues), QUICK).to_json()
    assert (shown["success"], shown["dialogues"]) == (1, 3)
    assert (shown["counts"]["success"], shown["counts"]["dialogues"], shown["counts"]["turns"]) == (1, 3, 8)
    assert shown["success_rate"] == pytest.approx(1 / 3)
    assert shown["intervals"]["success_rate"] == pytest.approx({"low": 0.0615, "high": 0.7923}, abs=5e-5)
    assert shown["mean_turns"] == pytest.approx(8 / 3)
    interval = shown["intervals"]["epm_q"]
    assert interval["low"] < shown["epm_q"] < interval["high"]
    assert set(shown["dimensions"]) == {"outcome", "efficiency", "stability"}
    assert shown["smallest_detectable_difference"]["epm_q"] > 0
    assert shown["settings"]["seed"] == 0
    assert "Tau" in shown["known_flaws"][0]
    assert any("1 of 8 turns have no judgement" in warning for warning in shown["warnings"])
    json.dumps(shown, allow_nan=False)


def test_levels_are_summed_not_scores(tmp_path):
    two = published([{"C.Prog": 2}], deficit=(-7, 0, 0))  # level 2 is worth a score of 3
    figures = evaluate_empa(judged(tmp_path, two), QUICK).figures
    assert figures["indices"]["Snet"] == pytest.approx(100 * 2 / (1.5 * 6))


def test_same_seed_same_intervals_and_another_seed_others(tmp_path):
    dialogues = [published([GOOD] * n, script=f"script_{n}", deficit=(-9, -9, -9)) for n in range(1, 7)]
    file = judged(tmp_path, *dialogues)
    first = evaluate_empa(file, QUICK).figures["intervals"]
    assert evaluate_empa(file, EmpaConfig(resamples=200, batch_rows=3)).figures["intervals"] == first
    assert evaluate_empa(file, EmpaConfig(resamples=200, seed=1)).figures["intervals"] != first


def test_a_broken_dialogue_is_left_out_and_counted(tmp_path):
    broken = published([BAD], script="script_2", reason="Lost the connection")
    broken["status"] = "failed"
    summary = evaluate_empa(judged(tmp_path, published([GOOD], reason=SUCCESS), broken), QUICK)
    assert (summary.counts["dialogues"], summary.counts["broken_dialogues"]) == (1, 1)
    assert "1 dialogues were left out: they broke." in summary.warnings


def test_turns_after_the_stop_do_not_count_unless_asked_for(tmp_path):
    base = {"group_id": "a", "sample": 0, "deficit": [-2, 0], "stop_turn": 1, "grades": []}
    turns = [base | {"turn": k, "increment": v} for k, v in enumerate([[1, 0], [1, 0], [-9, 0]])]
    file = logged(tmp_path, turns)
    stopped = evaluate_empa(file, QUICK).figures
    assert (stopped["mean_turns"], stopped["success"], stopped["indices"]["RDI"]) == (2, 1, 100)
    whole = evaluate_empa(file, EmpaConfig(resamples=200, until="end")).figures
    assert (whole["mean_turns"], whole["success"], whole["indices"]["RDI"]) == (3, 1, 0)


def test_a_stop_that_was_no_success_is_none(tmp_path):
    base = {"group_id": "a", "sample": 0, "deficit": [-2, 0], "stop_turn": 1, "grades": []}
    file = logged(tmp_path, [base | {"turn": k, "increment": [-1, 0]} for k in range(2)])
    assert evaluate_empa(file, QUICK).figures["success"] == 0


def test_a_log_without_stop_is_taken_at_its_word_or_replayed(tmp_path):
    base = {"sample": 0, "deficit": [-2, 0], "grades": []}
    told = [base | {"group_id": "told", "turn": 0, "increment": [0, 0], "end_reason": "success"}]
    silent = [base | {"group_id": "silent", "turn": k, "increment": [1, 0]} for k in range(3)]
    file = logged(tmp_path, told + silent)
    strict = evaluate_empa(file, QUICK)
    assert (strict.figures["success"], strict.counts["replayed_endings"]) == (1, 1)
    assert any("the stop rules were replayed" in warning for warning in strict.warnings)
    early = EmpaConfig(resamples=200, stop=StopRules(min_turns=2))
    assert evaluate_empa(file, early).figures["success"] == 2


def test_scenarios_are_drawn_with_all_their_dialogues(tmp_path):
    folders = [
        write_folder(tmp_path / name, published(turns, deficit=(-5, -5, -5)))
        for name, turns in (("good", [GOOD] * 2), ("bad", [BAD] * 2))
    ]
    import_empa(folders, tmp_path / "both.parquet")
    summary = evaluate_empa(tmp_path / "both.parquet", QUICK)
    assert (summary.counts["dialogues"], summary.counts["scenarios"]) == (2, 1)
    interval = summary.figures["intervals"]["epm_q"]
    assert interval["low"] == pytest.approx(interval["high"])
    assert any("one scenario" in warning for warning in summary.warnings)


def test_a_file_without_judgements_is_refused(tmp_path):
    file = logged(tmp_path, [{"group_id": "a", "sample": 0, "turn": 0, "reply": "Hello."}])
    with pytest.raises(InputError, match="lacks the columns deficit, position, grades"):
        evaluate_empa(file, QUICK)


def test_a_file_in_which_nothing_can_be_scored_is_refused(tmp_path):
    broken = published([GOOD], reason="Lost the connection")
    broken["status"] = "failed"
    with pytest.raises(InputError, match="1 broke and 0 have turns without a position"):
        evaluate_empa(judged(tmp_path, broken), QUICK)


def test_published_scores_of_four_models_are_reproduced(tmp_path):
    data = reference("empa")
    with (data / "published.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    successes = []
    for row in rows:
        file = tmp_path / f"{row['folder']}.parquet"
        import_empa([data / row["folder"]], file)
        figures = evaluate_empa(file, QUICK).figures
        expected = {name: float(row[f"Idx_{name}"]) for name in figures["indices"]}
        assert figures["indices"] == pytest.approx(expected, abs=0.02), row["folder"]
        assert figures["epm_q"] == pytest.approx(float(row["EPM-Q Score"]), abs=0.02), row["folder"]
        assert figures["dimensions"]["outcome"] == pytest.approx(float(row["Outcome Quality"]), abs=0.02)
        successes.append(figures["success"])
    assert successes == [28, 1, 4, 0]
