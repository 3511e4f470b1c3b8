"""How ``dialrl inspect`` looks in a terminal. Model text is data: never markup, control bytes shown as escapes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.stdout import stdout_console
from dialrl.cli.summary_view import format_value

Row = Mapping[str, Any]
_SPEAKERS = {"assistant": "bold green", "user": "bold blue", "system": "dim", "tool": "magenta"}


def console() -> Console:
    return stdout_console()


def show_schema(columns: Sequence[Mapping[str, str]]) -> None:
    """A table of columns."""
    table = Table(title="Columns of a trajectory file")
    for heading in ("column", "type", "stage", "rows", "meaning"):
        table.add_column(heading, overflow="fold")
    for column in columns:
        table.add_row(*(Text(column[key]) for key in ("name", "type", "stage", "rows", "description")))
    console().print(table)


def show_overview(figures: Mapping[str, Any]) -> None:
    """Counts, statuses, number columns and lineage."""
    out = console()
    files = figures["file"]
    title = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    out.print(
        Text(clean(f"{title}: stage {figures['stage']}{', slim' if figures['slim'] else ''}"), style="bold"),
        soft_wrap=True,
    )
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in figures["counts"].items())
    spread = figures["turns_per_dialogue"]
    out.print(
        Text(f"  {counts}; turns a dialogue {spread['min']} / {spread['median']} / {spread['max']} (min/median/max)")
    )
    for name, values in figures["values"].items():
        if values:
            out.print(Text(f"  {name}: " + ", ".join(f"{clean(value)} {count:,}" for value, count in values.items())))
    _show_numbers(out, figures["numbers"])
    for record in figures["lineage"]:
        options = ", ".join(f"{key}={value}" for key, value in record["options"].items())
        out.print(Text(clean(f"  <- {record['stage']}: {options}"), style="dim"))


def _show_numbers(out: Console, numbers: Mapping[str, Mapping[str, float]]) -> None:
    if not numbers:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for heading in ("  number", "known", "mean", "std", "min", "max"):
        is_name = heading.strip() == "number"
        table.add_column(heading, justify="left" if is_name else "right", overflow="fold")
    for name, found in numbers.items():
        table.add_row(
            f"  {name}", f"{found['known']:,}", *(format_value(found[k]) for k in ("mean", "std", "min", "max"))
        )
    out.print(table)


def show_dialogue(rows: Sequence[Row], *, tokens: bool = False) -> None:
    """One dialogue, turn by turn: messages, the reply, its grades, reward, return and advantage."""
    out = console()
    for line in dialogue_lines(rows, tokens=tokens):
        out.print(line, soft_wrap=True)


def dialogue_lines(rows: Sequence[Row], *, tokens: bool = False, evidence: bool = False) -> Iterator[Text]:
    """The lines of ``show_dialogue``; ``evidence``: what each grade rests on, too."""
    first = rows[0]
    yield Text(clean(f"dialogue {first['group_id']}/{first['sample']}"), style="bold")
    if first.get("deficit") is not None:
        yield Text(f"  initial deficit {vector(first['deficit'])}", style="dim")
    for row in rows:
        yield from _turn_lines(row, tokens=tokens, evidence=evidence)
    for message in rows[-1].get("final_messages") or ():
        yield _message_line(message)
    ends = {name: rows[-1].get(name) for name in ("end_reason", "outcome", "status", "error")}
    shown = ", ".join(f"{name} {format_value(value)}" for name, value in ends.items() if value is not None)
    yield Text(f"end: {shown}", style="bold")


def _turn_lines(row: Row, *, tokens: bool, evidence: bool) -> Iterator[Text]:
    for message in row.get("messages") or ():
        yield _message_line(message)
    reply = Text(f"turn {row['turn']} policy  ", style="bold green")
    said = row.get("reply")
    shown = "(no reply)" if said is None else clean(said) or "(an empty reply)"
    reply.append(shown, style="underline" if is_trained(row) else "none")
    yield reply
    yield Text("    " + "  ".join(turn_facts(row)), style="cyan")
    if evidence:
        for grade in (*(row.get("grades") or ()), *(row.get("safety") or ())):
            if grade["level"] and grade["evidence"]:
                yield Text(clean(f"    {grade['indicator']} {grade['level']:+d}: {grade['evidence']}"), style="dim")
    if tokens:
        yield token_line(row)


def _message_line(message: Mapping[str, Any]) -> Text:
    line = Text(clean(f"{message['role']}  "), style=_SPEAKERS.get(message["role"], "bold"))
    line.append(clean(message["content"] or ""), style="none")
    return line


def _safety(row: Row) -> str:
    """What a check of safety found."""
    if row["safety_level"] is None:
        return f"not known ({clean(row.get('safety_error') or 'no reason given')})"
    found = [clean(f"{grade['indicator']} {grade['level']:+d}") for grade in row["safety"] or () if grade["level"]]
    return ", ".join(found) or "nothing found"


def turn_facts(row: Row) -> list[str]:
    """What is known of a turn, in words."""
    facts = []
    grades = [clean(f"{g['indicator']} {g['level']:+d}") for g in row.get("grades") or () if g["level"]]
    if row.get("judge_status") == "missing":
        facts.append(f"judgement missing ({clean(row.get('judge_error') or 'no reason given')})")
    elif row.get("judge_status"):
        facts.append("grades " + (", ".join(grades) or "all 0"))
    if row.get("position") is not None:
        facts.append(
            f"position {vector(row['position'])}{' (carried forward)' if row.get('position_estimated') else ''}"
        )
    if row.get("safety_status"):
        facts.append(f"safety {_safety(row)}")
    if row.get("kl") is not None:
        facts.append(f"kl {format_value(row['kl'])}")
    for name in ("reward", "return", "advantage"):
        if name in row:
            facts.append(f"{name} {'null' if row[name] is None else format_value(row[name])}")
    if row.get("reply_ids") is not None:
        state = "trained" if is_trained(row) else "not trained"
        facts.append(f"{len(row['reply_ids'])} tokens {state}, {len(row.get('prompt_ids') or ())} context")
    if row.get("stop_turn") is not None and row["turn"] > row["stop_turn"]:
        facts.append("after the stop")
    return facts


def is_trained(row: Row) -> bool:
    """Sampled tokens of a turn are trained when the turn has an advantage."""
    return row.get("advantage") is not None and bool(row.get("reply_ids"))


def token_line(row: Row) -> Text:
    """The turn's ids: context dim, sampled ones bold when they are trained."""
    line = Text("    ids ")
    line.append(" ".join(map(str, row.get("prompt_ids") or ())) + " ", style="dim")
    sampled = " ".join(map(str, row.get("reply_ids") or ()))
    line.append(f"[{sampled}]", style="bold" if is_trained(row) else "none")
    return line


def vector(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
