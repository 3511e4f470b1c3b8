"""``dialrl inspect --browse``: groups, dialogues and turns of a trajectory file, looked through in the terminal.

The same data and the same lines as ``dialrl inspect --dialogue``; text of models is never markup. Needs the extra
``tui`` (textual). Not here: what the list holds (``trajectory.listing``), how a turn reads (``trajectory_view``).
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text

from dialrl.cli.plain_text import clean
from dialrl.cli.summary_view import format_value
from dialrl.cli.trajectory_view import dialogue_lines
from dialrl.errors import missing_extra
from dialrl.trajectory.inspection import find_dialogue
from dialrl.trajectory.listing import DialogueEntry, Filter, GroupEntry, Order, chosen, list_dialogues, list_groups
from dialrl.trajectory.reader import TrajectoryFile

try:
    from textual.app import App, ComposeResult
    from textual.binding import Binding, BindingType
    from textual.containers import Horizontal, Vertical
    from textual.widgets import DataTable, Footer, Input, RichLog, Static
except ImportError:
    raise missing_extra("tui", "textual") from None

_EVERY_GROUP = ""
_FILTERS: tuple[Filter, ...] = ("all", "missing", "flags", "broken")
_ORDERS: tuple[Order, ...] = ("file", "advantage", "reward")


def browse(source: TrajectoryFile) -> None:
    """Show the browser until the user leaves it."""
    Browser(source).run()


class Browser(App[None]):
    """Groups and dialogues on the left, the chosen dialogue on the right."""

    CSS = """
    #left { width: 46; }
    #groups { height: 1fr; border-bottom: solid $panel; }
    #dialogues { height: 2fr; }
    #said { padding: 0 1; }
    #state { height: 1; color: $text-muted; padding: 0 1; }
    #search { display: none; }
    #search.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "leave"),
        Binding("j", "move(1)", "next"),
        Binding("k", "move(-1)", "previous"),
        Binding("o", "next_order", "order"),
        Binding("f", "next_filter", "filter"),
        Binding("t", "tokens", "tokens"),
        Binding("slash", "search", "search id"),
        Binding("escape", "everything", "show all"),
    ]

    def __init__(self, source: TrajectoryFile) -> None:
        super().__init__()
        self.source = source
        self.entries = list_dialogues(source)
        self.shown: list[DialogueEntry] = []
        self.group, self.wanted = _EVERY_GROUP, ""
        self.kept: Filter = "all"
        self.order: Order = "file"
        self.with_tokens = False

    def compose(self) -> ComposeResult:
        yield Static(id="state")
        with Horizontal():
            with Vertical(id="left"):
                yield DataTable[Text](id="groups", cursor_type="row")
                yield DataTable[Text](id="dialogues", cursor_type="row")
            yield RichLog(id="said", wrap=True, markup=False, highlight=False)
        yield Input(id="search", placeholder="part of a dialogue's id")
        yield Footer()

    def on_mount(self) -> None:
        self.groups.add_columns("group", "n", "reward", "spread")
        self.dialogues.add_columns("dialogue", "turns", "reward", "|A|", "notes")
        self.groups.add_row(*_cells("every group", len(self.entries), None, None), key=_EVERY_GROUP)
        for group in list_groups(self.entries):
            self.groups.add_row(*_group_cells(group), key=group.group)
        self.refresh_list()
        self.dialogues.focus()

    @property
    def groups(self) -> "DataTable[Text]":
        return self.query_one("#groups", DataTable)

    @property
    def dialogues(self) -> "DataTable[Text]":
        return self.query_one("#dialogues", DataTable)

    def refresh_list(self) -> None:
        """Fill the list of dialogues anew, and open its first."""
        inside = [e for e in self.entries if self.group in (_EVERY_GROUP, e.group) and self.wanted in e.dialogue_id]
        self.shown = chosen(inside, self.kept, self.order)
        self.dialogues.clear()
        for entry in self.shown:
            self.dialogues.add_row(*_dialogue_cells(entry))
        said = f"{len(self.shown)} of {len(self.entries)} dialogues   filter: {self.kept}   order: {self.order}"
        self.query_one("#state", Static).update(
            Text(said + (f"   id has: {clean(self.wanted)}" if self.wanted else ""))
        )
        if not self.shown:
            self.write([Text("No dialogue is like that.", style="dim")])

    def on_data_table_row_highlighted(self, event: "DataTable.RowHighlighted") -> None:
        if event.data_table is self.groups:
            chosen_group = str(event.row_key.value or _EVERY_GROUP)
            if chosen_group != self.group:
                self.group = chosen_group
                self.refresh_list()
        elif event.cursor_row < len(self.shown):
            self.open(self.shown[event.cursor_row])

    def open(self, entry: DialogueEntry) -> None:
        """Show one dialogue."""
        rows = find_dialogue(self.source, entry.dialogue_id)
        self.write(list(dialogue_lines(rows, tokens=self.with_tokens, evidence=True)))

    def write(self, lines: Sequence[Text]) -> None:
        """Replace what is said on the right."""
        log = self.query_one("#said", RichLog)
        log.clear()
        for line in lines:
            log.write(line, scroll_end=False)
        log.scroll_home(animate=False)

    def action_move(self, by: int) -> None:
        self.dialogues.move_cursor(row=self.dialogues.cursor_row + by)

    def action_next_order(self) -> None:
        self.order = _ORDERS[(_ORDERS.index(self.order) + 1) % len(_ORDERS)]
        self.refresh_list()

    def action_next_filter(self) -> None:
        self.kept = _FILTERS[(_FILTERS.index(self.kept) + 1) % len(_FILTERS)]
        self.refresh_list()

    def action_tokens(self) -> None:
        self.with_tokens = not self.with_tokens
        if self.shown:
            self.open(self.shown[self.dialogues.cursor_row])

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.add_class("open")
        search.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.wanted = event.value.strip()
        event.input.remove_class("open")
        self.dialogues.focus()
        self.refresh_list()

    def action_everything(self) -> None:
        """Take every filter off."""
        self.query_one("#search", Input).remove_class("open")
        self.kept, self.order, self.wanted, self.group = "all", "file", "", _EVERY_GROUP
        self.groups.move_cursor(row=0)
        self.dialogues.focus()
        self.refresh_list()


def _group_cells(group: GroupEntry) -> list[Text]:
    return _cells(group.group, group.dialogues, group.reward, group.spread)


def _dialogue_cells(entry: DialogueEntry) -> list[Text]:
    notes = [
        entry.ending,
        f"{entry.missing} missing" if entry.missing else "",
        f"{entry.flags} flags" if entry.flags else "",
    ]
    return _cells(entry.dialogue_id, entry.turns, entry.reward, entry.largest_advantage, ", ".join(filter(None, notes)))


def _cells(*values: Any) -> list[Text]:
    """Values as text that is no markup; nothing where a value is not known."""
    return [
        Text("" if value is None else clean(value) if isinstance(value, str) else format_value(value))
        for value in values
    ]
