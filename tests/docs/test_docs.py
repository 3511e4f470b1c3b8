"""What the pages say is so: links lead somewhere, snippets run, commands and options exist, named tests are there.

Not here: that the tables of the preset pages are what presets compute (``tests/advantage/test_preset_pages.py``), and
the page of columns (``tests/trajectory/test_schema_page.py``).
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from dialrl.advantage.presets.registry import BUILT_IN
from dialrl.cli.app import COMMANDS, build
from dialrl.scenario.cards import load_cards
from dialrl.train.config import read_pipeline

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "pipelines", "data", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".yaml", ".md") and "__pycache__" not in path.parts
)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
SHELL = ("sh", "console")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def fences(page: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in INLINE.findall(prose(page))]


# links and references -----------------------------------------------------------------------------------------------


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", INLINE.sub("", prose(page))):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not link.startswith(("http:", "https:")) and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            broken.append(link)
    assert broken == []


def test_every_page_named_in_the_project_exists() -> None:
    named = {
        (name(path), page)
        for path in SOURCES
        for page in re.findall(r"(?<![\w/])docs/[\w./+-]*\.md", path.read_text(encoding="utf-8"))
    }
    assert [(where, page) for where, page in sorted(named) if not (ROOT / page).is_file()] == []
    assert len(named) > 20


def test_every_numbered_section_that_is_cited_exists() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs/credit.md").read_text(encoding="utf-8"), re.MULTILINE))
    cited = {
        (name(path), page, number)
        for path in SOURCES
        for page, number in re.findall(r"([\w-]+\.md) (\d+)\b", path.read_text(encoding="utf-8"))
    }
    assert [entry for entry in sorted(cited) if entry[1] != "credit.md" or entry[2] not in sections] == []
    assert sections == set("01234")


CASES = ROOT / "docs/field-cases.md"


def test_every_field_case_that_is_cited_is_on_the_page() -> None:
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. ", CASES.read_text(encoding="utf-8"), re.MULTILINE)]
    assert numbers == list(range(1, 35))
    lists = [re.findall(r"[Ff]ield cases? ([\d, and-]+)", path.read_text(encoding="utf-8")) for path in SOURCES]
    cited = {int(number) for found in lists for entry in found for number in re.findall(r"\d+", entry)}
    assert cited <= set(numbers)
    assert len(cited) > 10


def test_the_page_of_field_cases_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", CASES.read_text(encoding="utf-8"))
    absent = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).is_file() or f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert absent == []
    assert len(named) > 30


# snippets -----------------------------------------------------------------------------------------------------------

SNIPPETS = [
    pytest.param(text, id=f"{name(page)}-{number}")
    for page in PAGES
    for number, (language, text) in enumerate(fences(page))
    if language == "python"
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_python_runs(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "snippet", "exec"), {"__name__": "snippet"})


PIPELINES = [
    pytest.param(text, id=f"{name(page)}-{number}")
    for page in PAGES
    for number, (language, text) in enumerate(fences(page))
    if language == "yaml" and "my-card.yaml" not in text.partition("\n")[0]
]


@pytest.mark.parametrize("text", PIPELINES)
def test_yaml_is_a_pipeline_or_a_part_of_one(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    read_pipeline(file)


# commands -----------------------------------------------------------------------------------------------------------


@cache
def command(asked: str) -> click.Command:
    """The command ``asked``, or a group of commands."""
    root = typer.main.get_command(build(asked))
    assert hasattr(root, "commands")
    found: click.Command = root.commands[asked]
    return found


def options(asked: click.Command) -> set[str]:
    return {flag for parameter in asked.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def resolve(words: list[str]) -> tuple[click.Command, list[str]] | None:
    """The command that ``words`` (after ``dialrl``) name, and what follows; None for a placeholder such as STAGE."""
    if not words or words[0].startswith("-") or words[0].isupper() or words[0] == "...":
        return None
    assert words[0] in COMMANDS, f"there is no command 'dialrl {words[0]}'"
    found, rest = command(words[0]), words[1:]
    if hasattr(found, "commands"):
        if not rest or rest[0].isupper() or rest[0] == "...":
            return None
        assert rest[0] in found.commands, f"there is no command 'dialrl {' '.join(words[:2])}'"
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


def shell_lines(text: str) -> Iterator[list[str]]:
    """The ``dialrl`` commands of a shell block as words, comments and prompts taken off."""
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.removeprefix("$ ").strip()
        if stripped.startswith("dialrl "):
            yield shlex.split(stripped, comments=True)[1:]


COMMAND_LINES = [
    pytest.param(page, words, id=f"{name(page)}: {' '.join(words)}"[:90])
    for page in PAGES
    for language, text in fences(page)
    if language in SHELL
    for words in shell_lines(text)
]


def reader_folder(page: Path, folder: Path) -> Path:
    """What a reader of the page has: the pipelines, and the files that the page says to save (``# my-card.yaml``)."""
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    (folder / "data").symlink_to(ROOT / "data")
    for language, text in fences(page):
        if language == "yaml" and (saved := re.match(r"# ([\w-]+\.yaml)\n", text)):
            (folder / saved[1]).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("page", "words"), COMMAND_LINES)
def test_a_command_line_parses_and_its_settings_hold(
    page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run: with ``--dry-run`` a command reads its pipeline, ``--set`` and options, and stops."""
    named = resolve(words)
    assert named is not None
    asked, rest = named
    asked.make_context(words[0], list(rest))  # raises what a user would see
    if "--dry-run" in options(asked):
        monkeypatch.chdir(reader_folder(page, tmp_path))
        made_by_a_run = re.compile(r"^runs/.*\.yaml$")
        dry = ["pipelines/demo.yaml" if made_by_a_run.match(word) else word for word in rest]
        asked.main([*dry, "--dry-run"], words[0], standalone_mode=False)


def mentioned(page: Path) -> Iterator[list[str]]:
    """Every mention of a command on a page, as words without the brackets of usage lines."""
    outside = [code for code in inline_code(page) if code.startswith("dialrl ")]
    inside = [line.strip() for language, text in fences(page) if language != "python" for line in text.splitlines()]
    for code in (*outside, *(line.removeprefix("$ ") for line in inside)):
        if code.startswith("dialrl "):
            yield re.sub(r"[\[\]]", " ", code.partition(" #")[0]).split()[1:]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in mentioned(page):
        named = resolve(words)
        if named is not None:
            asked, rest = named
            flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
            assert flags <= options(asked), f"dialrl {' '.join(words)}: no such option"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_option_on_a_page_belongs_to_a_command(page: Path) -> None:
    known = set(_all_options())
    flags = {flag for code in inline_code(page) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert flags <= known


@cache
def _all_options() -> frozenset[str]:
    commands: list[Any] = [command(asked) for asked in COMMANDS]
    inside = [sub for asked in commands if hasattr(asked, "commands") for sub in asked.commands.values()]
    return frozenset(flag for asked in (*commands, *inside) for flag in options(asked)) | {"--version", "--help"}


def test_the_card_of_a_newcomer_is_a_card(tmp_path: Path) -> None:
    folder = reader_folder(ROOT / "docs/your-own.md", tmp_path)
    assert [card.id for card in load_cards(str(folder / "my-card.yaml"))] == ["my-first-card"]


# presets ------------------------------------------------------------------------------------------------------------

PRESETS = [preset.name for preset in BUILT_IN]
CREDIT = ROOT / "docs/credit.md"


def table(page: Path, heading: str = "") -> dict[str, list[str]]:
    """The tables below ``heading``, up to the next one, as first cell -> other cells."""
    text = page.read_text(encoding="utf-8").partition(heading)[2].partition("\n#")[0] if heading else prose(page)
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {first.strip(" `"): [cell.strip() for cell in cells] for first, *cells in rows}


def numbers(cells: list[str]) -> list[float]:
    return [float(number) for cell in cells for number in re.findall(r"-?[\d.]+", cell)]


def test_the_readme_and_the_page_of_credit_list_every_preset() -> None:
    listed = (ROOT / "README.md").read_text(encoding="utf-8").partition("Presets:")[2].partition(";")[0]
    assert sorted(re.findall(r"`([^`]+)`", listed)) == sorted(PRESETS)
    assert set(PRESETS) <= set(table(CREDIT, "## 2. Advantages"))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_golden_table_has_the_numbers_of_the_presets_own_page(preset: str) -> None:
    golden, own = table(CREDIT, "### The golden table"), table(ROOT / f"docs/presets/{preset}.md")
    if preset == "igpo":
        pairs = {mode: mode.removeprefix("separate, ") for mode in golden if "gamma" in mode}
        assert len(pairs) == 4
        assert all(numbers(golden[mode]) == numbers(own[on_page]) for mode, on_page in pairs.items())
    elif "A/0" not in own:  # on the gains and outcomes of igpo's table
        assert numbers(golden[preset]) == numbers(own[preset])
    else:
        dialogues = ("A/0", "A/1", "B/0", "B/1")
        assert numbers(golden[preset]) == numbers([own[dialogue][-1] for dialogue in dialogues])
        if "gamma" in own["dialogue"][1]:
            assert numbers(golden["G"]) == numbers([own[dialogue][1] for dialogue in dialogues])
