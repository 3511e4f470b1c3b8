"""``dialrl import empa``: published EMPA result files as one judged trajectory file.

One folder is one policy: the group is the script, the sample the folder's place in the order given, so that the
folders' dialogues on one script are compared with each other. The published position is taken as it stands; a turn
whose form is absent is a missing judgement (null increment, position carried forward), never a 0. Source:
docs/stages/import.md. Not here: the file's own format (``empa_file``), the judge's form (``empa_form``).
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialrl.errors import InputError, MissingInputError
from dialrl.progress import SILENT, Progress
from dialrl.state.rubric import Rubric, load_rubric
from dialrl.summary import StageSummary
from dialrl.trajectory.endings import TERMINATED_REASONS, TRUNCATED_REASONS
from dialrl.trajectory.importers.config import ImportEmpaConfig
from dialrl.trajectory.importers.empa_file import PublishedDialogue, read_published, stopped_by_rule
from dialrl.trajectory.importers.empa_form import read_form
from dialrl.trajectory.importers.sorted_output import Rows, write_groups
from dialrl.trajectory.lineage import InputFile, StageRecord, write_run_file
from dialrl.trajectory.reader import file_digest
from dialrl.trajectory.writer import refuse_existing

STAGE = "import"
COLUMNS = (
    "group_id", "sample", "turn", "dialogue_id", "scenario_id", "environment", "messages", "reply", "director",
    "status", "error", "end_reason", "terminated", "truncated", "outcome", "final_messages", "deficit", "increment",
    "position", "position_estimated", "grades", "judge_status", "judge_error", "stop_turn",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One file to import, and the sample it becomes."""

    path: Path
    sample: int


@dataclass
class _Tally:
    counts: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    disagreeing: list[str] = field(default_factory=list)
    other_deficit: list[str] = field(default_factory=list)
    other_epsilon: list[str] = field(default_factory=list)
    models: dict[str, dict[str, str | None]] = field(default_factory=dict)


def import_empa(
    folders: Sequence[Path | str],
    output: Path,
    config: ImportEmpaConfig | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Write the dialogues in ``folders`` (each with files ``*_result.json``) as the judged trajectory ``output``.

    Raises MissingInputError or InputError naming folder, file and key; OutputExistsError for an existing ``output``.
    """
    began = time.monotonic()
    config = config or ImportEmpaConfig()
    refuse_existing(output, overwrite=overwrite, resumable=False)
    places = [_folder(folder) for folder in folders]
    groups = _by_script(places)
    inputs = [_digest(folder) for folder in places]
    work = _Work(load_rubric(config.rubric), config)
    progress.start("import empa", None, "turns")
    write_groups(
        work.rows(groups), output, COLUMNS,
        record=lambda: work.record(inputs), batch_rows=config.batch_rows, progress=progress,
    )  # fmt: skip
    write_run_file(output, seconds=time.monotonic() - began)
    return work.summary(output)


class _Work:
    """Turns sources into rows and counts what it meets."""

    def __init__(self, rubric: Rubric, config: ImportEmpaConfig) -> None:
        self.rubric = rubric
        self.config = config
        self.tally = _Tally()

    def rows(self, groups: dict[str, list[Source]]) -> Iterator[Rows]:
        """The rows of each group, in order."""
        for script, sources in sorted(groups.items()):
            dialogues = [read_published(source.path) for source in sources]
            if any(dialogue.epj.deficit != dialogues[0].epj.deficit for dialogue in dialogues):
                self.tally.other_deficit.append(script)
            self.tally.counts["groups"] += 1
            yield [
                row
                for source, dialogue in zip(sources, dialogues, strict=True)
                for row in self._dialogue(source, dialogue)
            ]

    def record(self, inputs: Sequence[InputFile]) -> StageRecord:
        return StageRecord(
            STAGE,
            options={"from": "empa", **self.config.semantic_values()},
            inputs=tuple(inputs),
            counts=self._counts(),
            details={"rubric": self.rubric.digest(), "samples": self.tally.models},
        )

    def summary(self, output: Path) -> StageSummary:
        figures = {"endings": dict(sorted(self.tally.endings.items())), "samples": self.tally.models}
        return StageSummary("import empa", output, self._counts(), figures, tuple(self._warnings()))

    def _counts(self) -> dict[str, int]:
        names = ("groups", "dialogues", "turns", "missing_judgements", "repaired_judgements")
        return {name: self.tally.counts[name] for name in names}

    def _warnings(self) -> Iterator[str]:
        if self.tally.disagreeing:
            yield _counted(self.tally.disagreeing, "turns have an increment other than their levels give; it was kept")
        if self.tally.other_deficit:
            yield _counted(self.tally.other_deficit, "groups have dialogues with different initial deficits")
        if self.tally.other_epsilon:
            yield _counted(self.tally.other_epsilon, "dialogues were scored with an epsilon other than 1.0")

    def _dialogue(self, source: Source, dialogue: PublishedDialogue) -> Rows:
        self._count_dialogue(source, dialogue)
        rows = _talk(dialogue)
        position = list(dialogue.epj.deficit)
        points = dialogue.points
        for turn, row in enumerate(rows):
            row |= _keys(dialogue, source.sample, turn)
            point = points.get(turn)
            position = position if point is None else list(point.position)
            row |= {"deficit": dialogue.epj.deficit, "position": position}
            form = None if point is None else point.analysis
            increment = None if point is None else point.increment
            row |= self._judgement(form, increment, where=f"{source.path.name}, turn {turn}")
        _end(rows, dialogue)
        return rows

    def _count_dialogue(self, source: Source, dialogue: PublishedDialogue) -> None:
        names = ("test_model_name", "actor_model", "judger_model", "director_model")
        about = {"folder": source.path.parent.name, **{name: getattr(dialogue, name) for name in names}}
        self.tally.models.setdefault(str(source.sample), about)
        self.tally.counts["dialogues"] += 1
        self.tally.counts["turns"] += sum(entry.role == "test_model" for entry in dialogue.history)
        self.tally.endings[str(dialogue.end_reason)] += 1
        if dialogue.epj.epsilon != 1.0:
            self.tally.other_epsilon.append(source.path.name)

    def _judgement(self, form: dict[str, Any] | None, increment: list[float] | None, *, where: str) -> dict[str, Any]:
        if not form or increment is None:
            self.tally.counts["missing_judgements"] += 1
            return {
                "increment": None,
                "grades": None,
                "judge_status": "missing",
                "judge_error": "no form in the published file",
                "position_estimated": True,
            }
        read = read_form(form, self.rubric, reasoning=self.config.reasoning)
        self.tally.counts["repaired_judgements"] += read.status == "repaired"
        if not read.agrees(self.rubric, increment):
            self.tally.disagreeing.append(where)
        return {
            "increment": increment,
            "grades": read.grades,
            "judge_status": read.status,
            "judge_error": read.error,
            "position_estimated": False,
        }


def _talk(dialogue: PublishedDialogue) -> Rows:
    """One row a policy turn: the messages since the last one, and the reply; what follows stands in the last row."""
    rows: Rows = []
    messages: list[dict[str, str | None]] = []
    for entry in dialogue.history:
        if entry.role == "actor":
            messages.append({"role": "user", "name": None, "content": entry.content})
            continue
        guidance = entry.director_guidance
        director = None if guidance is None else {"tool": None, "argument": None, "guidance": guidance}
        rows.append({"messages": messages, "reply": entry.content, "director": director})
        messages = []
    rows[-1]["final_messages"] = messages
    return rows


def _keys(dialogue: PublishedDialogue, sample: int, turn: int) -> dict[str, Any]:
    script = dialogue.script_id
    return {
        "group_id": script,
        "sample": sample,
        "turn": turn,
        "dialogue_id": f"{script}/{sample}",
        "scenario_id": script,
        "environment": "import",
    }


def _end(rows: Rows, dialogue: PublishedDialogue) -> None:
    reason = dialogue.end_reason
    broken = reason == "error"
    stop = len(rows) - 1 if reason is not None and stopped_by_rule(reason) else None
    for row in rows:
        row |= {"status": "error" if broken else "ok", "stop_turn": stop}
    rows[-1] |= {
        "error": dialogue.termination_reason if broken else None,
        "end_reason": reason,
        "terminated": reason in TERMINATED_REASONS,
        "truncated": reason in TRUNCATED_REASONS,
        "outcome": None if broken else float(reason == "success"),
    }


def _folder(folder: Path | str) -> Path:
    path = Path(folder)
    if not path.exists():
        raise MissingInputError(f"The folder '{path}' does not exist. Give folders of published EMPA result files.")
    if not path.is_dir():
        raise InputError(f"'{path}' is a file; expected a folder of published EMPA result files (*_result.json).")
    return path


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*_result.json"))
    if not found:
        raise InputError(f"The folder '{folder}' holds no *_result.json file; expected published EMPA dialogues.")
    return found


def _by_script(folders: Sequence[Path]) -> dict[str, list[Source]]:
    """Files by script id, each group in the order of the folders; a script twice in a folder is refused."""
    groups: dict[str, list[Source]] = {}
    for sample, folder in enumerate(folders):
        seen: dict[str, Path] = {}
        for path in _files(folder):
            script = read_published(path).script_id
            if script in seen:
                raise InputError(
                    f"'{seen[script]}' and '{path}' both are script '{script}'; expected one file a script."
                )
            seen[script] = path
            groups.setdefault(script, []).append(Source(path, sample))
    return groups


def _digest(folder: Path) -> InputFile:
    lines = "\n".join(f"{path.name} {file_digest(path)}" for path in _files(folder))
    return InputFile(folder.resolve().name, "sha256:" + hashlib.sha256(lines.encode()).hexdigest())


def _counted(places: Sequence[str], sentence: str) -> str:
    return f"{len(places)} {sentence} (first: {places[0]})."
