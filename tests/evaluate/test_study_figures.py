"""Figures of a study by hand: final share, area, collapses, intervals over seeds, paired tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dialrl.evaluate.statistics import interquartile_mean
from dialrl.evaluate.study_figures import bootstrapped, cells, comparisons, curves, overall, reference_shares
from dialrl.evaluate.study_table import COLUMNS, SCHEMA


def table(**curves_by_name: list[list[float]]) -> pa.Table:
    """``setting__preset`` -> one learning curve a seed; silent 0, myopic 2.5, optimum 10: the myopic share is 0.25."""
    rows: list[dict[str, Any]] = []
    for name, runs in curves_by_name.items():
        setting, preset = name.split("__")
        for seed, shares in enumerate(runs):
            rows += [
                {
                    "tier": "fast", "phase": "final", "setting": setting, "preset": preset, "step_size": 4.0,
                    "seed": seed, "silent": 0.0, "myopic": 2.5, "optimum": 10.0, "clairvoyant": 11.0,
                    "iteration": 10 * place, "share": share, "value": 10 * share,
                    "gradient_norm": None if place == 0 else float(place),
                }
                for place, share in enumerate(shares)
            ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_one_run_by_hand() -> None:
    (cell,) = cells(table(short__mica=[[0.0, 0.8, 0.5]]))
    (run,) = cell.runs
    assert (run.final, run.best, run.gradient_norm) == (0.5, 0.8, 1.5)
    assert run.area == pytest.approx((0.4 + 0.65) / 2)
    assert run.collapsed and not run.stuck


@pytest.mark.parametrize(
    ("curve", "collapsed", "stuck"),
    [
        ([0.0, 0.6, 0.41], False, False),
        ([0.0, 0.6, 0.39], True, False),
        ([0.0, 0.29], False, True),
        ([0.31], False, False),
    ],
)
def test_collapsed_and_stuck_runs(curve: list[float], collapsed: bool, stuck: bool) -> None:
    (cell,) = cells(table(short__mica=[curve]))
    assert (cell.runs[0].collapsed, cell.runs[0].stuck) == (collapsed, stuck)
    assert (cell.collapses, cell.stuck) == (int(collapsed), int(stuck))


def test_a_cell_is_the_interquartile_mean_of_its_seeds() -> None:
    (cell,) = cells(table(short__mica=[[0.1], [0.2], [0.3], [4.0]]))
    assert cell.final == pytest.approx(0.25)
    assert cell.worst == pytest.approx(0.1)
    assert cell.final_interval.low < 0.25 < cell.final_interval.high


def test_tuning_runs_are_in_no_figure() -> None:
    rows = table(short__mica=[[0.5]]).to_pylist()
    rows[0]["phase"] = "tuning"
    tuned = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert cells(tuned) == []
    assert curves(tuned) == []


def test_the_bootstrap_draws_within_each_stratum() -> None:
    apart = {"easy": np.full(8, 1.0), "hard": np.zeros(8)}
    assert bootstrapped(apart).low == bootstrapped(apart).high == pytest.approx(0.5)
    together = bootstrapped({"all": np.concatenate([np.full(8, 1.0), np.zeros(8)])})
    assert together.low < 0.5 < together.high


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 20])
def test_the_bootstrap_takes_the_interquartile_mean(number: int) -> None:
    values = np.random.default_rng(number).normal(size=number)
    generator = np.random.default_rng(0)
    drawn = [interquartile_mean(row) for row in generator.choice(values, (200, number))]
    interval = bootstrapped({"": values}, resamples=200)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])))


def test_over_all_settings_only_presets_that_were_run_everywhere() -> None:
    found = cells(table(short__mica=[[0.2], [0.2]], long__mica=[[0.6], [0.6]], long__grpo=[[0.9]]))
    means = overall(found)
    assert list(means) == ["mica"]
    assert means["mica"][0] == pytest.approx(0.4)


def test_pairs_are_seeds_and_p_values_are_corrected_within_the_setting() -> None:
    base = [[0.5], [0.6], [0.7]]
    higher, equal = [[0.6], [0.8], [1.0]], base
    made = comparisons(cells(table(short__mica=base, short__grpo=higher, short__rloo=equal)), "mica")
    grpo, rloo = made
    assert (grpo.preset, grpo.against, grpo.pairs) == ("grpo", "mica", 3)
    assert grpo.difference == pytest.approx(0.2)
    assert grpo.effect == pytest.approx(2.0)
    assert grpo.p == pytest.approx(0.5)  # 2 of 8 sign patterns, times two tests
    assert (rloo.difference, rloo.p, rloo.effect) == (0.0, 1.0, None)


def test_no_comparison_where_the_other_preset_was_not_run() -> None:
    assert comparisons(cells(table(short__grpo=[[0.5]])), "mica") == []


def test_curves_and_exact_shares() -> None:
    made = table(short__mica=[[0.0, 0.4], [0.2, 0.6]])
    points = curves(made)
    assert [(p.iteration, round(p.share, 6), p.seeds) for p in points] == [(0, 0.1, 2), (10, 0.5, 2)]
    assert points[1].interval.low <= 0.5 <= points[1].interval.high
    exact = {"silent": 0.0, "myopic": 0.25, "optimum": 1.0, "clairvoyant": 1.1}
    assert reference_shares(made) == {"short": pytest.approx(exact)}


def test_the_page_names_every_column_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/stages/lab.md").read_text(encoding="utf-8")
    for name, (_, description) in COLUMNS.items():
        assert f"| `{name}` | {description} |" in page
