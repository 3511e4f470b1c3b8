"""Small result files of the shape EMPA publishes (docs/stages/import.md), with invented text, built from levels.

``published`` makes one dialogue: a turn is a dictionary of levels (others are 0), or None where the judge failed.
Positions and increments follow from the levels by the shipped scores; what a test wants wrong it changes afterwards.
"""

import json
from pathlib import Path
from typing import Any

from dialrl.state.rubric import load_rubric

RUBRIC = load_rubric()
USER_LINES = ("The allotment flooded again.", "I had just planted the leeks.", "My sister says to give it up.")
REPLIES = ("That soil took you years.", "Which bed did the water reach first?", "You kept it going through worse.")
SUCCESS = "EPM v2.0 Success: Positional Victory (crossed/approached target zone)"
COLLAPSE = "EPM v2.0 Failure: 5 consecutive negative-energy turns (Direction Collapse), Persistent Regression"
OSCILLATION = "EPM v2.0 Failure: Vector Oscillation (total change 37, net change 2)"
TURN_LIMIT = "Reached max turns (45), timeout"

Levels = dict[str, int]


def published(
    turns: list[Levels | None],
    *,
    script: str = "script_001",
    deficit: tuple[int, ...] = (-6, -8, -4),
    reason: str = TURN_LIMIT,
    model: str = "invented/model",
) -> dict[str, Any]:
    """One result file as a dictionary."""
    position, points, history = list(deficit), [_point(0, list(deficit), [0, 0, 0], None)], []
    for number, levels in enumerate(turns, start=1):
        change = [0, 0, 0] if levels is None else _increment(levels)
        position = [here + one for here, one in zip(position, change, strict=True)]
        points.append(_point(number, position, change, levels))
        history.append({"role": "actor", "content": f"{USER_LINES[number % 3]} ({number})"})
        history.append({"role": "test_model", "content": REPLIES[number % 3], "director_guidance": "Wait."})
    return {
        "total_turns": len(turns),
        "termination_reason": reason,
        "script_id": script,
        "scenario": {},
        "history": history,
        "test_model_name": model,
        "actor_model": "invented/actor",
        "judger_model": "invented/judge",
        "director_model": "invented/director",
        "epj": {"P_0_initial_deficit": list(deficit), "trajectory": points, "K": 1, "epsilon": 1.0},
        "status": "success",
        "timestamp": "2026-01-01T00:00:00",
    }


def write_folder(folder: Path, *dialogues: dict[str, Any]) -> Path:
    """Result files in ``folder``, one a dialogue, named by script."""
    folder.mkdir(parents=True, exist_ok=True)
    for dialogue in dialogues:
        path = folder / f"{dialogue['script_id']}_result.json"
        path.write_text(json.dumps(dialogue, ensure_ascii=False), encoding="utf-8")
    return folder


def _increment(levels: Levels) -> list[int]:
    whole = dict.fromkeys(RUBRIC.indicator_names, 0) | levels
    return [int(value) for value in RUBRIC.increment_from_levels(whole)]


def _point(number: int, position: list[int], change: list[int], levels: Levels | None) -> dict[str, Any]:
    point: dict[str, Any] = {"turn": number, "P_t": position, "v_t": change, "distance": 0.0, "in_zone": False}
    if levels is not None:
        point["mdep_analysis"] = _form(dict.fromkeys(RUBRIC.indicator_names, 0) | levels)
    return point


def _form(levels: Levels) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for indicator, level in levels.items():
        key = indicator.replace(".", "_")
        evidence = "That soil took you years." if level else "0"
        form |= {f"{key}_level": level, f"{key}_evidence": evidence, f"{key}_reasoning": f"Level {level} it is."}
    return form
