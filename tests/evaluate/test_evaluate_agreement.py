"""evaluate agreement: files side by side, what is missing, test-retest, the gate, refusals."""

import json
import sys

import pytest
from tests.trajectory_files import row, write

from dialrl.errors import InputError, MissingExtraError, UsageError
from dialrl.evaluate.agreement import evaluate_agreement
from dialrl.evaluate.benchmark_config import AgreementConfig
from dialrl.state.rubric import load_rubric
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

QUICK = AgreementConfig(resamples=50)
INDICATORS = load_rubric().indicator_names
LEVELS = [(0, 0), (1, -1), (2, 0), (1, -2), (0, -1), (2, 0)]  # C.Prog and C.Neg of six turns


def judged_rows(levels=LEVELS, *, reply="Tell me.", **more):
    """Two dialogues of one turn a scenario; a turn is (C.Prog, C.Neg) or None where the judge failed."""
    return [_turn(f"g{number // 2}", number % 2, graded, reply, more) for number, graded in enumerate(levels)]


def _turn(group, sample, graded, reply, more):
    known = graded is not None
    chosen = dict.fromkeys(INDICATORS, 0) | ({"C.Prog": graded[0], "C.Neg": graded[1]} if known else {})
    grades = [
        {"indicator": name, "level": level, "evidence": None, "reasoning": None} for name, level in chosen.items()
    ]
    return row(
        group, sample, 0, scenario_id=group, reply=reply, deficit=[-9.0] * 3, grades=grades if known else None,
        increment=[float(sum(graded)), 1.0, 0.0] if known else None, judge_status="ok" if known else "missing", **more,
    )  # fmt: skip


def samples(*levels):
    """grade_samples of one judge on C.Prog."""
    return [
        {"judge": "j", "sample": number, "indicator": "C.Prog", "level": level, "status": "ok"}
        for number, level in enumerate(levels)
    ]


def write_judged(path, rows, **options):
    """A judged file whose lineage names its judge."""
    table = rows_to_table(rows)
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("judge", options={"judge": "demo", "judge_options": {}, **options}),)))
    return path


def test_the_same_grades_agree_wholly(tmp_path):
    files = [write(tmp_path / f"{name}.parquet", judged_rows()) for name in "ab"]
    shown = evaluate_agreement(files, QUICK).to_json()
    assert shown["indicators"]["C.Prog"] == {
        "alpha": 1.0, "ac2": 1.0, "kappa": 1.0, "low": 1.0, "high": 1.0, "same_level": 1.0, "turns": 6,
    }  # fmt: skip
    assert shown["pairs"]["a | b"]["cosine"] == pytest.approx(1.0)
    assert shown["axes"]["a | b"]["C"] == {"same_sign": 1.0, "offset": 0.0, "spread_ratio": 1.0}
    assert shown["gate"]["alpha"] == {"value": 1.0, "least": 0.667, "met": True}
    json.dumps(shown, allow_nan=False)


def test_an_indicator_that_never_varies_has_no_kappa_and_no_alpha_but_ac2(tmp_path):
    files = [write(tmp_path / f"{name}.parquet", judged_rows()) for name in "ab"]
    summary = evaluate_agreement(files, QUICK)
    still = summary.figures["indicators"]["P.Neg"]
    assert (still["alpha"], still["kappa"], still["ac2"], still["same_level"]) == (None, None, 1.0, 1.0)
    assert any("Kappa of A.Neg, A.Prog, P.Neg, P.Prog is not defined" in warning for warning in summary.warnings)


def test_a_missing_judgement_stays_missing_and_is_counted(tmp_path):
    first = write(tmp_path / "a.parquet", judged_rows([*LEVELS[:-1], None]))
    second = write(tmp_path / "b.parquet", judged_rows())
    summary = evaluate_agreement([first, second], QUICK)
    assert (summary.counts["turns"], summary.counts["missing_judgements"]) == (6, 1)
    assert summary.figures["indicators"]["C.Prog"]["turns"] == 5
    assert summary.figures["pairs"]["a | b"]["turns"] == 5
    assert "1 judgements are missing; they are in no measure." in summary.warnings


def test_three_judges_are_compared_two_by_two(tmp_path):
    other = [(0, 0), (2, 0), (2, 0), (1, -2), (0, -1), (1, 0)]
    graded = {"a": LEVELS, "b": LEVELS, "c": other}
    files = [write(tmp_path / f"{name}.parquet", judged_rows(levels)) for name, levels in graded.items()]
    figures = evaluate_agreement(files, QUICK).figures
    assert list(figures["pairs"]) == ["a | b", "a | c", "b | c"]
    assert figures["pairs"]["a | b"]["kappa"] == 1.0
    assert figures["pairs"]["a | c"]["kappa"] < 1.0
    assert figures["indicators"]["C.Prog"]["same_level"] == pytest.approx((6 + 4 + 4) / 18)
    assert figures["indicators"]["C.Prog"]["low"] <= figures["indicators"]["C.Prog"]["kappa"]


def test_turns_of_one_file_only_are_counted_and_left_out(tmp_path):
    files = [
        write(tmp_path / "a.parquet", judged_rows()),
        write(tmp_path / "b.parquet", judged_rows(LEVELS[:4])),
        write(tmp_path / "c.parquet", judged_rows(LEVELS[:2])),
    ]
    counts = evaluate_agreement(files, QUICK).counts
    assert (counts["turns"], counts["turns_in_one_file_only"], counts["turns_some_file_lacks"]) == (4, 2, 2)


def test_the_same_judge_twice_is_test_retest_and_another_judge_is_not(tmp_path):
    again = [(0, 0), (1, -1), (2, 0), (1, -2), (0, -1), (1, 0)]
    first = write_judged(tmp_path / "a.parquet", judged_rows(), seed=0)
    second = write_judged(tmp_path / "b.parquet", judged_rows(again), seed=1)
    stranger = write_judged(tmp_path / "c.parquet", judged_rows(again), judge_options={"noise": 0.1})
    figures = evaluate_agreement([first, second], QUICK).figures
    assert figures["pairs"]["a | b"]["same_judge"] is True
    expected = figures["indicators"]["C.Prog"]["kappa"]
    assert figures["test_retest"]["a | b, C.Prog"]["kappa"] == expected
    assert figures["gate"]["test_retest_kappa"]["value"] == pytest.approx((expected + 1.0) / 2)  # C.Prog and C.Neg
    apart = evaluate_agreement([first, stranger], QUICK).figures
    assert apart["test_retest"] == {}
    assert apart["gate"]["test_retest_kappa"] == {"value": None, "least": 0.8, "met": None}


def test_one_file_with_several_samples_gives_test_retest_alone(tmp_path):
    rows = judged_rows()
    for place, (one, two) in enumerate([(0, 0), (1, 1), (2, 2), (1, 1), (0, 1), (2, None)]):
        rows[place]["grade_samples"] = samples(one, two, 0)
    figures = evaluate_agreement([write(tmp_path / "a.parquet", rows)], QUICK).figures
    # Levels 0, 1, 2, 1, 0 and 0, 1, 2, 1, 1: observed 1; expected by counts (2, 2, 1) and (1, 3, 1) of 5 units.
    expected = (2 * 3 + 2 * 4 + 2 * 1 + 2 * 1 + 1 * 4 + 3 * 1) / 5
    assert figures["test_retest"]["a, C.Prog"]["kappa"] == pytest.approx(1 - 1 / expected)
    assert figures["test_retest"]["a, C.Prog"]["turns"] == 5
    assert figures["gate"]["test_retest_kappa"]["met"] is (1 - 1 / expected >= 0.8)


def test_one_file_with_one_judgement_a_turn_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has one judgement a turn"):
        evaluate_agreement([write(tmp_path / "a.parquet", judged_rows())], QUICK)


def test_other_dialogues_are_refused(tmp_path):
    first = write(tmp_path / "a.parquet", judged_rows())
    elsewhere = write(tmp_path / "b.parquet", [{**turn, "group_id": "x" + turn["group_id"]} for turn in judged_rows()])
    with pytest.raises(InputError, match="share no turn"):
        evaluate_agreement([first, elsewhere], QUICK)
    other_words = write(tmp_path / "c.parquet", judged_rows(reply="Go on."))
    with pytest.raises(InputError, match="'a' and 'c' have different replies in dialogue 'g0/0', turn 0"):
        evaluate_agreement([first, other_words], QUICK)


def test_levels_and_indicators_that_the_rubric_lacks_are_refused(tmp_path):
    fine = write(tmp_path / "a.parquet", judged_rows())
    high = write(tmp_path / "b.parquet", judged_rows([(7, 0), *LEVELS[1:]]))
    with pytest.raises(InputError, match=r"'C\.Prog' has the level 7; the rubric has \[0, 1, 2\]"):
        evaluate_agreement([fine, high], QUICK)
    rows = judged_rows()
    for turn in rows:
        turn["grades"] = [{**grade, "indicator": "Z"} for grade in turn["grades"]]
    with pytest.raises(InputError, match="Indicator 'Z' is not in the rubric 'support'"):
        evaluate_agreement([write(tmp_path / f"{name}.parquet", rows) for name in "cd"], QUICK)


def test_nothing_judged_in_common_is_refused(tmp_path):
    files = [write(tmp_path / f"{name}.parquet", judged_rows([None] * 2)) for name in "ab"]
    with pytest.raises(InputError, match="every judgement is missing"):
        evaluate_agreement(files, QUICK)


def test_files_of_the_same_name_are_told_apart_and_one_given_twice_is_refused(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    files = [write(tmp_path / folder / "judge.parquet", judged_rows()) for folder in ("x", "y")]
    (pair,) = evaluate_agreement(files, QUICK).figures["pairs"]
    assert pair == f"{files[0]} | {files[1]}"
    with pytest.raises(UsageError, match="given twice"):
        evaluate_agreement([files[0], files[0]], QUICK)


def test_without_the_library_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "krippendorff", None)
    files = [write(tmp_path / f"{name}.parquet", judged_rows()) for name in "ab"]
    with pytest.raises(MissingExtraError, match=r"pip install 'dialrl\[stats\]'"):
        evaluate_agreement(files, QUICK)
