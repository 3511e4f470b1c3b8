"""The charts of the page: each a Vega-Lite view with its rows inside, a title, and a sentence on how to read it.

Pure: rows in, specifications out; a chart without rows is left out. Not here: where rows come from (``run_figures``,
``file_figures``), and the theme (the page's script).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dialrl.report import marks, run_figures
from dialrl.report.file_figures import FileFigures
from dialrl.report.marks import MUTED, Row, Spec
from dialrl.report.sources import Run

LEARNING, CREDIT, HEALTH, COST = "Learning", "Credit", "Health", "Cost"


@dataclass(frozen=True)
class Chart:
    """One figure of the page."""

    identifier: str
    section: str
    title: str
    caption: str
    spec: Spec

    def to_json(self) -> Spec:
        return {
            "id": self.identifier,
            "section": self.section,
            "title": self.title,
            "caption": self.caption,
            "spec": self.spec,
        }


def run_charts(runs: Sequence[Run]) -> list[Chart]:
    """Charts over iterations; none without a run."""
    if not runs:
        return []
    return [
        *_learning_curve(runs),
        *_over_iterations(
            "update", LEARNING, "What the update saw",
            "Entropy falling to 0 early, or a spread of returns near 0, means there is nothing left to learn from.",
            chain.from_iterable(map(run_figures.update_figures, runs)), runs, "value", "figure", facet=True,
        ),
        *_over_iterations(
            "degenerate", CREDIT, "Degenerate pools",
            "Share of pools whose returns are all equal (or that have one member): their advantages are 0.",
            chain.from_iterable(map(run_figures.degenerate_pools, runs)), runs, "share", "scope", shape=".1~%",
        ),
        *_over_iterations(
            "rollout-flags", HEALTH, "Odd replies and dialogues",
            "Replies cut by the token limit, dialogues that came twice in a group, dialogues that broke.",
            chain.from_iterable(map(run_figures.rollout_flags, runs)), runs, "count", "what",
        ),
        *_over_iterations(
            "judge-counts", HEALTH, "Judgements of the training dialogues",
            "By status; filled turns had no judgement and were given a mean.",
            chain.from_iterable(map(run_figures.judge_counts, runs)), runs, "count", "what",
        ),
        *_over_iterations(
            "tokens", COST, "Tokens an iteration",
            "Context the policy read, tokens it sampled, tokens the update trained on (every epoch counts).",
            chain.from_iterable(map(run_figures.token_counts, runs)), runs, "tokens", "kind", shape=".3s",
        ),
        *_stage_seconds(runs),
        *_over_iterations(
            "throughput", COST, "Throughput",
            "Tokens a second: sampled by the rollout, trained on by the update.",
            chain.from_iterable(map(run_figures.tokens_per_second, runs)), runs, "rate", "stage", shape=".3s",
        ),
    ]  # fmt: skip


def file_charts(files: Sequence[FileFigures]) -> list[Chart]:
    """Charts of the trajectory files: by turn, advantages, flags, judge."""
    return [
        *_by_turn("reward-by-turn", "Reward by turn", "Mean reward", [r for f in files for r in f.reward_by_turn]),
        *_length_by_turn(files),
        *_advantage_histogram(files),
        *_advantage_by_turn(files),
        *_counted(
            "flags", "Flags", "What was noticed on turns and dialogues, by file.",
            list(chain.from_iterable(f.flags for f in files)), "flag",
        ),
        *_judge_health(files),
        *_levels(files),
        *_usage(files),
    ]  # fmt: skip


def _learning_curve(runs: Sequence[Run]) -> list[Chart]:
    figure = run_figures.measure(runs)
    held_out = list(chain.from_iterable(run_figures.held_out_curve(run, figure) for run in runs))
    training = list(chain.from_iterable(run_figures.training_curve(run, figure) for run in runs))
    lines = run_figures.reference_lines(runs, figure)
    if not held_out and not training:
        return []
    x = marks.number("iteration", axis=marks.whole_axis("Iterations", [*held_out, *training], "iteration"))
    y = marks.number("value", "Share of optimum" if figure == "share" else "Score (total reward)")
    what = marks.colour("run", "Run") if len(runs) > 1 else marks.colour("what")
    tips = marks.tooltip(("run", "run", ""), ("what", "dialogues", ""), ("iteration", "iterations", "d"))
    tips += marks.tooltip(("value", figure, ".3f"), ("low", "95 % from", ".3f"), ("high", "to", ".3f"))
    band: Spec = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    curve: Spec = {"transform": [{"filter": "datum.what == 'held out'"}]}
    layers = [
        {**curve, "mark": {"type": "area", "opacity": 0.18}, "encoding": {"x": x, "color": what, **band}},
        {
            "transform": [{"filter": "datum.what == 'training'"}],
            "mark": {"type": "line", "strokeWidth": 1.2, "opacity": 0.75},
            "encoding": {"x": x, "y": y, "color": what, "tooltip": tips},
        },
        {
            **curve,
            "mark": {"type": "line", "strokeWidth": 2.4, "point": {"size": 46, "filled": True}},
            "encoding": {"x": x, "y": y, "color": what, "tooltip": tips},
        },
        *_reference_layers(lines, y),
    ]
    caption = "Held-out scenarios with their 95 % interval (drawn over scenarios), and the training dialogues."
    if lines:
        caption += " Dashed: the best next reward (myopic), and the best possible policy (optimum)."
    spec = marks.chart([*held_out, *training], height=340, layer=layers)
    return [Chart("curve", LEARNING, "Learning curve", caption, spec)]


def _reference_layers(lines: Sequence[Row], y: Spec) -> list[Spec]:
    if not lines:
        return []
    data = {"name": "lines", "values": marks.rounded(lines)}
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": MUTED}
    text = {"x": {"value": "width"}, "y": y, "text": {"field": "line", "type": "nominal"}}
    return [
        {
            "data": data,
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": MUTED, "strokeWidth": 1.4},
            "encoding": {
                "y": y,
                "tooltip": marks.tooltip(("line", "policy", ""), ("value", "value", ".3f")),
            },
        },
        {"data": data, "mark": label, "encoding": text},
    ]


def _over_iterations(
    identifier: str,
    section: str,
    title: str,
    caption: str,
    given: chain[Row],
    runs: Sequence[Run],
    field: str,
    name: str,
    *,
    shape: str = ",~f",
    facet: bool = False,
) -> list[Chart]:
    """Lines by name over iterations; several runs differ by dash. ``facet``: small charts of their own scale."""
    rows = list(given)
    if not rows:
        return []
    x = marks.number("iteration", axis=marks.whole_axis("Iterations", rows, "iteration"))
    tips = marks.tooltip(("run", "run", ""), (name, name, ""), ("iteration", "iterations", "d"), (field, field, shape))
    dash = {"strokeDash": marks.channel("run", "nominal", legend={"orient": "top", "title": None})}
    if facet:
        return [Chart(identifier, section, title, caption, _small_charts(rows, x, field, name, tips, runs))]
    y = marks.number(field, field.capitalize(), axis={"format": shape, "title": field.capitalize()})
    spec = marks.line_chart(rows, x, y, marks.colour(name), tips)
    if len(runs) > 1:
        spec["encoding"].update(dash)
    return [Chart(identifier, section, title, caption, spec)]


def _small_charts(rows: list[Row], x: Spec, field: str, name: str, tips: list[Spec], runs: Sequence[Run]) -> Spec:
    """One small chart a figure, each with its own scale, below one another."""
    figures = list(dict.fromkeys(row[name] for row in rows))
    colour = {"color": marks.colour("run", columns=3) if len(runs) > 1 else {"value": "#3b7dd8"}}
    views = []
    for index, figure in enumerate(figures):
        last = index == len(figures) - 1
        axis = (
            marks.whole_axis("Iterations", rows, "iteration")
            if last
            else {"title": None, "labels": False, "ticks": False, "grid": False}
        )
        y = marks.number(
            field, figure, scale={"zero": False}, axis={"title": figure, "tickCount": 3, "titleFontSize": 10}
        )
        views.append(
            {
                "width": "container",
                "height": 62,
                "transform": [{"filter": {"field": name, "equal": figure}}],
                "mark": {"type": "line", "strokeWidth": 1.6},
                "encoding": {"x": {**x, "axis": axis}, "y": y, "tooltip": tips, **colour},
            }
        )
    return {"data": {"name": "rows", "values": marks.rounded(rows)}, "spacing": 8, "vconcat": views}


def _stage_seconds(runs: Sequence[Run]) -> list[Chart]:
    rows = list(chain.from_iterable(map(run_figures.stage_seconds, runs)))
    if not rows:
        return []
    spec = marks.bar_chart(
        rows,
        marks.number("iteration", axis=marks.whole_axis("Iterations", rows, "iteration")),
        marks.number("seconds", "Seconds", aggregate="sum", stack="zero"),
        marks.colour("stage"),
        [
            *marks.tooltip(("run", "run", ""), ("stage", "stage", ""), ("iteration", "iterations", "d")),
            marks.number("seconds", "seconds", aggregate="sum", format=".3~g"),
        ],
    )
    if len(runs) > 1:
        spec["encoding"]["xOffset"] = {"field": "run"}
        spec["encoding"]["x"] = marks.channel("iteration", "ordinal", "Iterations")
    return [Chart("seconds", COST, "Time by stage", "Seconds of each iteration; evaluations come every few.", spec)]


def _by_turn(identifier: str, title: str, what: str, rows: list[Row]) -> list[Chart]:
    if not rows:
        return []
    x = marks.number("turn", scale={"zero": False, "nice": False}, axis=marks.whole_axis("Turn", rows, "turn"))
    y = marks.number("mean", what, scale={"zero": False})
    name = marks.colour("set")
    tips = marks.tooltip(
        ("set", "file", ""), ("turn", "turn", "d"), ("mean", what.lower(), ".3f"), ("turns", "turns", "d")
    )
    layers = [
        {
            "mark": {"type": "area", "opacity": 0.15},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": name},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 36, "filled": True}},
            "encoding": {"x": x, "y": y, "color": name, "tooltip": tips},
        },
    ]
    caption = "Mean over dialogues with its 95 % interval; later turns may rest on fewer dialogues."
    return [Chart(identifier, LEARNING, title, caption, marks.chart(rows, layer=layers))]


def _length_by_turn(files: Sequence[FileFigures]) -> list[Chart]:
    """In tokens where any file has them (the others are left out), else in characters."""
    unit = "tokens" if any(f.length_unit == "tokens" for f in files) else "characters"
    rows: list[Row] = [row for f in files if f.length_unit == unit for row in f.length_by_turn]
    return _by_turn("length-by-turn", "Length by turn", f"{unit.capitalize()} a reply", rows)


def _advantage_histogram(files: Sequence[FileFigures]) -> list[Chart]:
    rows = [_labelled(row, files) for f in files for row in f.advantages]
    if not rows:
        return []
    spec = marks.chart(
        rows,
        mark={"type": "line", "interpolate": "step", "strokeWidth": 1.8},
        encoding={
            "x": marks.number("advantage", "Advantage"),
            "y": marks.number("share", "Share of turns", axis={"format": ".0%", "title": "Share of turns"}),
            "color": marks.colour("term"),
            "tooltip": marks.tooltip(
                ("term", "term", ""), ("advantage", "advantage", ".2f"), ("share", "share", ".1%")
            ),
        },
    )
    caption = "The whole advantage of each preset, and its terms before they are weighted; the tails are cut at 0.5 %."
    return [Chart("advantage", CREDIT, "Advantages by preset and term", caption, spec)]


def _labelled(row: Row, files: Sequence[FileFigures]) -> Row:
    """The term with its file's name where two files have the same preset."""
    presets = [f.preset for f in files if f.advantages]
    return {**row, "term": f"{row['term']} ({row['set']})"} if len(set(presets)) < len(presets) else row


def _advantage_by_turn(files: Sequence[FileFigures]) -> list[Chart]:
    rows = [_labelled(row, files) for f in files for row in f.advantage_by_turn]
    if not rows:
        return []
    x = marks.number("turn", scale={"zero": False, "nice": False}, axis=marks.whole_axis("Turn", rows, "turn"))
    name = marks.colour("term")
    tips = marks.tooltip(("term", "preset", ""), ("turn", "turn", "d"), ("middle", "median", ".2f"))
    tips += marks.tooltip(("low", "10 % below", ".2f"), ("high", "90 % below", ".2f"))
    y = marks.number("middle", "Advantage")
    layers = [
        {
            "mark": {"type": "area", "opacity": 0.18},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": name},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 36, "filled": True}},
            "encoding": {"x": x, "y": y, "color": name, "tooltip": tips},
        },
    ]
    caption = "Median and middle 80 % of the turns. A level that drifts with the turn favours short or long dialogues."
    return [Chart("advantage-by-turn", CREDIT, "Advantage by turn", caption, marks.chart(rows, layer=layers))]


def _counted(identifier: str, title: str, caption: str, rows: list[Row], field: str) -> list[Chart]:
    if not rows:
        return []
    spec = marks.bar_chart(
        rows,
        marks.number("count", "Count"),
        marks.channel(field, "nominal", None, sort="-x", axis={"labelLimit": 200}),
        marks.colour("set"),
        marks.tooltip(("set", "file", ""), (field, field, ""), ("count", "count", ",d")),
        yOffset={"field": "set", "sort": None},
    )
    return [Chart(identifier, HEALTH, title, caption, {**spec, "height": {"step": 16}})]


def _judge_health(files: Sequence[FileFigures]) -> list[Chart]:
    rows = list(chain.from_iterable(f.judge for f in files))
    if not rows:
        return []
    spec = marks.bar_chart(
        rows,
        marks.number(
            "count", "Share of judgements", stack="normalize", axis={"format": ".0%", "title": "Share of judgements"}
        ),
        marks.channel("set", "nominal", None, sort=None, axis={"labelLimit": 200}),
        marks.colour("status"),
        marks.tooltip(("set", "file", ""), ("status", "status", ""), ("count", "turns", ",d")),
    )
    caption = "ok, repaired (read after mending the judge's answer), or missing: never counted as a score of 0."
    return [Chart("judge", HEALTH, "Judge health", caption, {**spec, "height": {"step": 30}})]


def _levels(files: Sequence[FileFigures]) -> list[Chart]:
    rows = list(chain.from_iterable(f.levels for f in files))
    if not rows:
        return []
    spec = marks.bar_chart(
        [{**row, "grade": f"{row['indicator']} {row['level']:+d}"} for row in rows],
        marks.number("count", "Turns"),
        marks.channel("grade", "nominal", None, sort=None),
        marks.colour("set"),
        marks.tooltip(("set", "file", ""), ("grade", "grade", ""), ("count", "turns", ",d")),
        yOffset={"field": "set", "sort": None},
    )
    caption = "How often each level other than 0 was given. A judge that always gives the same teaches nothing."
    return [Chart("levels", HEALTH, "Grades given", caption, {**spec, "height": {"step": max(8, 18 // len(files))}})]


def _usage(files: Sequence[FileFigures]) -> list[Chart]:
    rows = list(chain.from_iterable(f.usage for f in files))
    if not rows:
        return []
    spec = marks.bar_chart(
        [{**row, "who": f"{row['set']}: {row['role']}"} for row in rows],
        marks.number("tokens", "Tokens", axis={"format": "~s", "title": "Tokens"}),
        marks.channel("who", "nominal", None, sort=None, axis={"labelLimit": 200}),
        marks.colour("kind"),
        marks.tooltip(("who", "role", ""), ("kind", "kind", ""), ("tokens", "tokens", ",d")),
    )
    caption = "What every model call of these files read and wrote, by role."
    return [Chart("usage", COST, "Tokens by role", caption, {**spec, "height": {"step": 26}})]
