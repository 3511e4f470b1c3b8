"""Small pieces of Vega-Lite that the charts share: encodings, layers, sizes. Data only; no colours of a theme.

Vega-Lite is the plotting language; its library comes with the package vl-convert-python and is put into the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Spec = dict[str, Any]
Row = Mapping[str, Any]
HEIGHT = 230
MUTED = "#8a8f98"


def rounded(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows with numbers to five significant digits, which is more than a pixel shows."""
    return [
        {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    ]


def channel(field: str, kind: str, title: str | None = None, **more: Any) -> Spec:
    """One encoding channel: ``kind`` is quantitative, ordinal or nominal."""
    return {"field": field, "type": kind, "title": title, **more}


def number(field: str, title: str | None = None, **more: Any) -> Spec:
    return channel(field, "quantitative", title, **more)


def colour(field: str, title: str | None = None, *, columns: Any = None) -> Spec:
    """Colour by name, in the order the rows come, with a legend above the chart: one column where that is narrow."""
    wide = {"expr": "width < 420 ? 1 : 3"}
    legend = {
        "orient": "top",
        "title": title,
        "symbolType": "circle",
        "symbolOpacity": 1,
        "labelLimit": 260,
        "columns": columns or wide,
    }
    return {"field": field, "type": "nominal", "sort": None, "legend": legend}


def whole_axis(title: str, rows: Iterable[Row], field: str) -> Spec:
    """An x axis of whole numbers; where they are few, a tick at each of them and none between."""
    values = sorted({row[field] for row in rows})
    ticks = {"values": values} if len(values) <= 12 else {"tickMinStep": 1}
    return {"title": title, "format": "d", "grid": False, **ticks}


def tooltip(*fields: tuple[str, str, str]) -> list[Spec]:
    """(field, title, format) each; an empty format is for names."""
    return [
        {
            "field": field,
            "title": title,
            **({"type": "quantitative", "format": shape} if shape else {"type": "nominal"}),
        }
        for field, title, shape in fields
    ]


def chart(rows: Iterable[Row], *, height: int = HEIGHT, **parts: Any) -> Spec:
    """A view as wide as its place in the page."""
    data = {"name": "rows", "values": rounded(rows)}
    return {"width": "container", "height": height, "data": data, **parts}


def line_chart(rows: Iterable[Row], x: Spec, y: Spec, name: Spec, tips: list[Spec], *, points: bool = False) -> Spec:
    """Lines by name."""
    mark = {"type": "line", "strokeWidth": 1.8, "point": {"size": 22} if points else False}
    return chart(rows, mark=mark, encoding={"x": x, "y": y, "color": name, "tooltip": tips})


def bar_chart(rows: Iterable[Row], x: Spec, y: Spec, name: Spec, tips: list[Spec], **more: Any) -> Spec:
    """Bars by name."""
    encoding = {"x": x, "y": y, "color": name, "tooltip": tips, **more}
    return chart(rows, mark={"type": "bar", "cornerRadius": 1}, encoding=encoding)
