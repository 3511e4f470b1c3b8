"""compare: policies paired by scenario, results of benchmarks, and advantage presets on the same returns."""

import json

import numpy as np
import pytest
from tests.benchmark_files import conversation, write_lines
from tests.trajectory_files import judged, read, write

from credit_files import GOLDEN, returns_of, rows_of
from credit_files import write as write_turns
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.stage import compute_advantages
from dialrl.errors import InputError, UsageError
from dialrl.evaluate.compare import compare
from dialrl.evaluate.compare_advantages import average_ranks, correlation
from dialrl.evaluate.compare_config import CompareConfig
from dialrl.evaluate.sage import evaluate_sage

QUICK = CompareConfig(resamples=200)


def policy(tmp_path, name, groups, *, ending="turn_limit"):
    """Judged dialogues on one axis from a deficit of -9; the zone begins at -1, so J is 8 less what is left."""
    rows = judged(groups)
    for turn in rows:
        turn["end_reason"] = ending if turn["end_reason"] else None
    return write(tmp_path / f"{name}.parquet", rows, "judge")


# policies -----------------------------------------------------------------------------------------------------------


def test_differences_are_paired_by_scenario_and_by_hand(tmp_path):
    first = policy(tmp_path, "a", {"s": [[-8.0], [-6.0]], "t": [[-5.0]], "u": [[-1.0]]})
    second = policy(tmp_path, "b", {"s": [[-5.0], [-5.0]], "t": [[-4.0]]}, ending="success")
    summary = compare([first, second], QUICK)
    shown = summary.to_json()
    assert shown["values"]["a"]["score"] == pytest.approx((1 + 3 + 4 + 8) / 4)
    assert shown["values"]["b"] == {
        "score": pytest.approx((4 + 4 + 5) / 3), "success_rate": 1.0, "turns": 1.0, "scenarios": 2, "counted": 3,
        "left_out": 0,
    }  # fmt: skip
    found = shown["differences"]["score"]["b - a"]
    # Scenario s: 4 - 2 = 2; t: 5 - 4 = 1.
    assert (found["difference"], found["better_share"], found["scenarios"]) == (1.5, 1.0, 2)
    assert found["effect_size"] == pytest.approx(1.5 / np.std([2, 1], ddof=1))
    assert (found["p"], found["low"], found["high"]) == (0.5, 1.0, 2.0)
    assert shown["counts"]["scenarios_left_out"] == 1
    json.dumps(shown, allow_nan=False)


def test_every_comparison_is_corrected_for_all_of_them(tmp_path):
    files = [
        policy(tmp_path, name, {f"s{n}": [[-8.0 + gain]] for n in range(8)})
        for name, gain in zip("abc", (0, 1, 2), strict=True)
    ]
    against_first = compare(files, QUICK).figures["differences"]
    assert list(against_first["score"]) == ["b - a", "c - a"]
    assert against_first["score"]["b - a"]["p"] == 2 / 2**8
    # Six comparisons: both scores 2 / 256, the others without any difference.
    assert against_first["score"]["b - a"]["p_holm"] == pytest.approx(6 * 2 / 2**8)
    assert against_first["turns"]["c - a"]["p_holm"] == 1.0
    every = compare(files, CompareConfig(resamples=200, pairs="all")).figures["differences"]
    assert list(every["score"]) == ["b - a", "c - a", "c - b"]


def test_what_cannot_be_told_apart_is_said_with_the_smallest_difference_that_could(tmp_path):
    first = policy(tmp_path, "a", {"s": [[-8.0]], "t": [[-5.0]]})
    second = policy(tmp_path, "b", {"s": [[-5.0]], "t": [[-6.0]]})
    summary = compare([first, second], QUICK)
    assert summary.figures["differences"]["score"]["b - a"]["smallest_detectable"] > 1
    assert any("Not told from no difference: score, b - a" in warning for warning in summary.warnings)


def test_broken_dialogues_are_left_out_and_counted(tmp_path):
    rows = judged({"s": [[-8.0], [-4.0]]})
    rows[1]["status"] = "error"
    first = write(tmp_path / "a.parquet", rows, "judge")
    second = policy(tmp_path, "b", {"s": [[-8.0]]})
    values = compare([first, second], QUICK).figures["values"]
    assert (values["a"]["score"], values["a"]["counted"], values["a"]["left_out"]) == (1.0, 1, 1)


def test_policies_without_a_common_scenario_are_refused(tmp_path):
    files = [policy(tmp_path, name, {name: [[-8.0]]}) for name in "ab"]
    with pytest.raises(InputError, match="'a' and 'b' have no scenario in common"):
        compare(files, QUICK)


def test_one_file_or_the_same_twice_is_refused(tmp_path):
    file = policy(tmp_path, "a", {"s": [[-8.0]]})
    with pytest.raises(UsageError, match="two files or more; got 1"):
        compare([file], QUICK)
    with pytest.raises(UsageError, match="given twice"):
        compare([file, file], QUICK)


# results of benchmarks ----------------------------------------------------------------------------------------------


def results(tmp_path, name, finals):
    lines = write_lines(tmp_path / f"{name}.jsonl", [conversation(key, 40, final) for key, final in finals.items()])
    evaluate_sage(lines, output=tmp_path / f"{name}.parquet")
    return tmp_path / f"{name}.parquet"


def test_results_of_a_benchmark_are_paired_by_item(tmp_path):
    files = [results(tmp_path, "a", {"x": 40, "y": 45}), results(tmp_path, "b", {"x": 50, "y": 45, "z": 35})]
    summary = compare(files, QUICK)
    found = summary.figures["differences"]["score"]["b - a"]
    assert (summary.stage, found["difference"], found["scenarios"]) == ("compare items", 5.0, 2)


def test_kinds_that_do_not_go_together_are_refused(tmp_path):
    item, dialogue = results(tmp_path, "a", {"x": 40}), policy(tmp_path, "b", {"s": [[-8.0]]})
    with pytest.raises(UsageError, match="with one another only"):
        compare([item, dialogue], QUICK)
    with pytest.raises(UsageError, match="Not every file has advantages"):
        compare([dialogue, policy(tmp_path, "c", {"s": [[-8.0]]})], CompareConfig(what="advantages"))


# advantage presets --------------------------------------------------------------------------------------------------


def presets(tmp_path, *names, groups=GOLDEN):
    returned, _ = returns_of(write_turns(tmp_path / "turns.parquet", rows_of(groups)))
    files = [tmp_path / f"{name}.parquet" for name in names]
    for name, file in zip(names, files, strict=True):
        compute_advantages(returned, file, AdvantageConfig(preset=name), overwrite=True)
    return files


def test_presets_on_the_same_returns_are_set_side_by_side(tmp_path):
    files = presets(tmp_path, "mica", "grpo")
    summary = compare(files, QUICK)
    first, second = (np.array([turn["advantage"] for turn in read(file)]) for file in files)
    found = summary.figures["pairs"]["mica | grpo"]
    assert found["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert found["sign_flips"] == int((first * second < 0).sum())
    assert found["turns"] == 11
    assert summary.figures["presets"]["mica"]["estimator"] == "mica"
    turn_0 = [turn["advantage"] for turn in read(files[0]) if turn["turn"] == 0]
    assert summary.figures["by_turn"]["0"]["mica"] == pytest.approx(np.mean(turn_0))
    assert summary.figures["by_turn"]["0"]["turns"] == 4
    json.dumps(summary.to_json(), allow_nan=False)


def test_degenerate_pools_are_counted_again_from_the_rewards(tmp_path):
    groups = {"g": [(1.0, 1.0), (1.0, 0.0)], "h": [(2.0,), (2.0,)]}
    figures = compare(presets(tmp_path, "turn-only", "grpo", groups=groups), QUICK).figures
    # Returns (gamma .85) of g: 1.85, 1 and 1, 0; of h: 2 and 2. By turn: g0, g1, h0, of which h0 is degenerate.
    assert figures["presets"]["turn-only"]["degenerate_pools"] == pytest.approx(1 / 3)
    # By group: the dialogues' sums 2, 1 and 2, 2.
    assert figures["presets"]["grpo"]["degenerate_pools"] == pytest.approx(1 / 2)


def test_the_most_changed_dialogues_come_first(tmp_path):
    files = presets(tmp_path, "mica", "grpo")
    rows = [read(file) for file in files]
    scaled = [np.array([turn["advantage"] for turn in held]) for held in rows]
    scaled = [values / np.sqrt(np.mean(values**2)) for values in scaled]
    by_dialogue = {}
    for turn, change in zip(rows[0], np.abs(scaled[1] - scaled[0]), strict=True):
        by_dialogue.setdefault(turn["dialogue_id"], []).append(change)
    expected = sorted(by_dialogue, key=lambda name: -np.mean(by_dialogue[name]))
    found = compare(files, CompareConfig(most_changed=2)).figures["most_changed"]
    assert list(found) == expected[:2]
    assert found[expected[0]]["mean_change"] == pytest.approx(np.mean(by_dialogue[expected[0]]))


def test_a_preset_is_the_same_as_itself_and_slim_files_are_read(tmp_path):
    (file,) = presets(tmp_path, "mica")
    slim = tmp_path / "again.parquet"
    compute_advantages(tmp_path / "turns-returns.parquet", slim, AdvantageConfig(preset="mica"), slim=True)
    figures = compare([file, slim], QUICK).figures
    found = figures["pairs"]["mica | again"]
    assert (found["correlation"], found["rank_correlation"], found["sign_flips"]) == (
        pytest.approx(1),
        pytest.approx(1),
        0,
    )
    assert figures["presets"]["mica"]["degenerate_pools"] == figures["presets"]["again"]["degenerate_pools"]
    assert all(entry["mean_change"] == 0 for entry in figures["most_changed"].values())


def test_advantages_of_other_returns_are_refused(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    other = {"g0": [(1.0, 0.5, 0.8), (0.3, 0.9)]}
    files = [*presets(tmp_path / "x", "mica"), *presets(tmp_path / "y", "grpo", groups=other)]
    with pytest.raises(InputError, match="computed from different returns files"):
        compare(files, CompareConfig(what="advantages"))


def test_imported_advantages_are_compared_without_pools(tmp_path):
    turns = [turn | {"advantage": float(place)} for place, turn in enumerate(rows_of(GOLDEN))]
    opposite = [turn | {"advantage": -turn["advantage"]} for turn in turns]
    files = [write_turns(tmp_path / "a.parquet", turns), write_turns(tmp_path / "b.parquet", opposite)]
    figures = compare(files, CompareConfig(what="advantages")).figures
    assert (figures["pairs"]["a | b"]["correlation"], figures["pairs"]["a | b"]["sign_flips"]) == (
        pytest.approx(-1),
        10,
    )
    assert (figures["presets"]["a"]["estimator"], figures["presets"]["a"]["degenerate_pools"]) == ("imported", None)
    fewer = write_turns(tmp_path / "c.parquet", turns[:-1])
    with pytest.raises(InputError, match="'c' are others than the first file's"):
        compare([files[0], fewer], CompareConfig(what="advantages"))


def test_ranks_share_their_mean_and_a_constant_has_no_correlation():
    assert average_ranks(np.array([5.0, 1.0, 5.0])).tolist() == [2.5, 1.0, 2.5]
    assert correlation(np.array([1.0, 1.0]), np.array([0.0, 2.0])) is None
    assert correlation(np.array([1.0]), np.array([2.0])) is None
