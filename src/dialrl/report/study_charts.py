"""A study of credit rules on the page: learning curves, final shares and a table by setting and preset.

Figures come from ``evaluate.study_figures``; exact values of the world (myopic, optimum) are lines in every chart. Not
here: running a study (``dialrl lab``), drawing (the page's script).
"""

from collections.abc import Sequence
from typing import Any

from dialrl.evaluate.statistics import Interval
from dialrl.evaluate.study_figures import Cell, comparisons, curves, overall, reference_shares
from dialrl.report import marks
from dialrl.report.charts import Chart
from dialrl.report.marks import MUTED, Row, Spec
from dialrl.report.study import Study

# Fourteen names can be told apart on light and dark ground.
_COLOURS = [
    "#3b7dd8", "#e07b39", "#2f9e77", "#b264cf", "#c79a1e", "#d4556b", "#3fa7b8", "#7c8a2f", "#8c6bff", "#a8643c",
    "#5fbf5f", "#e069b0", "#6d86a8", "#b0855a",
]  # fmt: skip
_LINES = ("myopic", "optimum")


def study_charts(studies: Sequence[Study]) -> list[Chart]:
    """Learning curves and final shares, a chart each for every setting of every study."""
    return [chart for study in studies for setting in study.settings for chart in _charts(study, setting, len(studies))]


def _charts(study: Study, setting: str, studies: int) -> list[Chart]:
    place = f"{study.name}-{setting}" if studies > 1 else setting
    section = f"Credit rules compared: {study.name}, {setting}" if studies > 1 else f"Credit rules compared: {setting}"
    exact = reference_shares(study.table)[setting]
    lines = [{"line": name, "value": exact[name]} for name in _LINES]
    return [
        Chart(
            f"study-curve-{place}", section, "Learning curves",
            "Share of the optimum on held-out scenarios: interquartile mean over seeds with its 95 % interval. Dashed:"
            " the best next reward (myopic) and the best possible policy. Click a name to see it alone.",
            _curve_spec(study, setting, lines),
        ),
        Chart(
            f"study-final-{place}", section, "After training",
            "Final share by preset: interquartile mean with its 95 % interval; small marks are the seeds. The axis ends"
            " at the optimum.",
            _final_spec(study, setting, lines),
        ),
    ]  # fmt: skip


def _curve_spec(study: Study, setting: str, lines: Sequence[Row]) -> Spec:
    rows = [
        {"preset": p.preset, "iteration": p.iteration, "share": p.share, "low": p.interval.low, "high": p.interval.high}
        for p in curves(study.table)
        if p.setting == setting
    ]
    x = marks.number("iteration", axis=marks.whole_axis("Updates", rows, "iteration"))
    y = marks.number("share", "Share of optimum")
    name = {**marks.colour("preset"), "scale": {"range": _COLOURS}}
    tips = marks.tooltip(("preset", "preset", ""), ("iteration", "updates", "d"), ("share", "share", ".3f"))
    tips += marks.tooltip(("low", "95 % from", ".3f"), ("high", "to", ".3f"))
    band = {"x": x, "color": name, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "opacity": _when_chosen(0.13)}
    line = {"x": x, "y": y, "color": name, "tooltip": tips, "opacity": _when_chosen(1.0)}
    chosen = {"name": "chosen", "select": {"type": "point", "fields": ["preset"]}, "bind": "legend"}
    layers: list[Spec] = [
        {"mark": {"type": "area"}, "encoding": band, "params": [chosen]},
        {"mark": {"type": "line", "strokeWidth": 2, "point": {"size": 24, "filled": True}}, "encoding": line},
        *_lines_across(lines),
    ]
    return marks.chart(rows, height=340, layer=layers)


def _when_chosen(opacity: float) -> Spec:
    return {"condition": {"param": "chosen", "value": opacity}, "value": 0.04}


def _lines_across(lines: Sequence[Row]) -> list[Spec]:
    """Horizontal lines with their names at the right end."""
    y = marks.number("value", "Share of optimum")
    data = {"values": marks.rounded(lines)}
    rule = {"type": "rule", "strokeDash": [5, 4], "color": MUTED, "strokeWidth": 1.4}
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": MUTED}
    text = {"x": {"value": "width"}, "y": y, "text": {"field": "line", "type": "nominal"}}
    return [{"data": data, "mark": rule, "encoding": {"y": y}}, {"data": data, "mark": label, "encoding": text}]


def _final_spec(study: Study, setting: str, lines: Sequence[Row]) -> Spec:
    found = [cell for cell in study.cells if cell.setting == setting]
    rows = [_final_row(cell) for cell in found]
    seeds = [{"preset": cell.preset, "final": run.final, "seed": run.seed} for cell in found for run in cell.runs]
    y: Spec = {"field": "preset", "type": "nominal", "sort": None, "title": None}
    low = min(cell.worst for cell in found) - 0.02  # near enough to tell presets apart
    lines = [line for line in lines if line["value"] >= low]
    x = marks.number("final", "Share of optimum", scale={"domain": [low, 1.0], "nice": False})
    colour: Spec = {"field": "preset", "type": "nominal", "sort": None, "scale": {"range": _COLOURS}, "legend": None}
    tips = marks.tooltip(("preset", "preset", ""), ("final", "final share", ".3f"), ("low", "95 % from", ".3f"))
    tips += marks.tooltip(("high", "to", ".3f"), ("step_size", "step size", "~g"))
    across: Spec = {"y": y, "color": colour, "tooltip": tips}
    layers: list[Spec] = [
        {
            "data": {"values": marks.rounded(seeds)},
            "mark": {"type": "tick", "thickness": 1.5, "opacity": 0.45, "size": 9},
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": marks.tooltip(("seed", "seed", "d"))},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 3.5},
            "encoding": {**across, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 70}, "encoding": {**across, "x": x}},
        {
            "data": {"values": marks.rounded(lines)},
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": MUTED, "strokeWidth": 1.4},
            "encoding": {
                "x": marks.number("value", "Share of optimum"),
                "tooltip": marks.tooltip(("line", "planner", "")),
            },
        },
    ]
    return marks.chart(rows, height=max(120, 28 * len(rows)), layer=layers)


def _final_row(cell: Cell) -> Row:
    interval = cell.final_interval
    return {
        "preset": cell.preset,
        "final": cell.final,
        "low": interval.low,
        "high": interval.high,
        "step_size": cell.step_size,
    }


def study_tables(studies: Sequence[Study], against: str = "mica") -> list[dict[str, Any]]:
    """One table a setting: title, caption, columns, and rows of texts."""
    made = [_table(study, setting, against) for study in studies for setting in study.settings]
    return made + [_overall(study) for study in studies if len(study.settings) > 1 and overall(study.cells)]


def _table(study: Study, setting: str, against: str) -> dict[str, Any]:
    tests = {test.preset: test for test in comparisons(study.cells, against) if test.setting == setting}
    exact = reference_shares(study.table)[setting]
    rows = []
    for cell in (each for each in study.cells if each.setting == setting):
        test = tests.get(cell.preset)
        pair = ["", ""] if test is None else [f"{test.difference:+.3f}", f"{test.p:.4f}"]
        rows.append(
            [
                cell.preset, _spelled(cell.final, cell.final_interval), _spelled(cell.area, cell.area_interval),
                f"{cell.worst:.3f}", str(cell.collapses), str(cell.stuck), f"{cell.gradient_norm:.3f}",
                f"{cell.step_size:g}", str(len(cell.runs)), *pair,
            ]
        )  # fmt: skip
    return {
        "title": f"{study.name}: {setting}",
        "caption": f"Exact values of this world: myopic {exact['myopic']:.3f}, optimum 1, clairvoyant"
        f" {exact['clairvoyant']:.3f}. Interquartile means over seeds with 95 % intervals; a run has collapsed that"
        f" ends 0.2 below its own best, and is stuck at the myopic plateau. Difference from {against}: paired by seed,"
        " p by sign flips, corrected (Holm).",
        "columns": [
            "preset", "final share", "area under the curve", "worst seed", "collapses", "stuck", "gradient norm",
            "step size", "seeds", f"minus {against}", "p",
        ],
        "rows": rows,
    }  # fmt: skip


def _overall(study: Study) -> dict[str, Any]:
    means = overall(study.cells)
    return {
        "title": f"{study.name}: over all settings",
        "caption": "Interquartile mean of the final share over all settings and seeds; the bootstrap draws seeds within"
        " each setting (Agarwal et al. 2021).",
        "columns": ["preset", "final share"],
        "rows": [[preset, _spelled(mean, interval)] for preset, (mean, interval) in means.items()],
    }


def _spelled(value: float, interval: Interval) -> str:
    return f"{value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
