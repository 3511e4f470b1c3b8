"""The pages "how to add": their files, saved and installed as they say, and their commands, run in order."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.docs.test_docs import FENCE, ROOT, shell_lines

from dialrl.environment.search.passages import load_passages
from dialrl.resources import resource

PAGES = sorted((ROOT / "docs/how-to").glob("*.md"))
SAVED = re.compile(r"Save as `([^`]+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def installed(page: Path, folder: Path) -> None:
    """Save the page's files in ``folder`` and register their entry points, as installing the project would."""
    for name, text in SAVED.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(head, encoding="utf-8")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(words: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "dialrl", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"dialrl {' '.join(words)}: {done.stderr}"
    return done.stdout


def rows(folder: Path, name: str) -> pa.Table:
    return pq.read_table(folder / name)


def the_channel(folder: Path, printed: str) -> None:
    made = rows(folder, "returns.parquet")
    assert made["reward_brief"].to_pylist() == [0.0, -6.0]
    assert made["reward"].to_pylist() == pytest.approx([1.0, 0.4])


def the_preset(folder: Path, printed: str) -> None:
    made = rows(folder, "advantage.parquet")["advantage"].to_pylist()
    assert made == pytest.approx([1.8868, -1.8868, 0.7774, -0.7774], abs=5.1e-5)
    assert "ahead" in printed


def the_judge(folder: Path, printed: str) -> None:
    judged = rows(folder, "judged.parquet")
    levels = {grade["level"] for grades in judged["grades"].to_pylist() for grade in grades or ()}
    assert levels <= {0, 2}
    assert set(judged["judge_status"].to_pylist()) <= {"ok", "missing"}
    assert judged["deficit"].to_pylist()[0] == [-7.0, -12.0, -7.0]


def the_environment(folder: Path, printed: str) -> None:
    made = rows(folder, "tea.parquet")
    assert set(made["environment"].to_pylist()) == {"tea"}
    ended = made.filter(pc.is_valid(made["end_reason"]))
    assert ended["end_reason"].to_pylist() == ["turn_limit"] * 4
    assert ended["outcome"].to_pylist() == [0.0] * 4


def the_retriever(folder: Path, printed: str) -> None:
    messages = [message for row in rows(folder, "rollout.parquet")["messages"].to_pylist() for message in row]
    found = [message["content"] for message in messages if message["role"] == "tool"]
    shipped = {passage.text for passage in load_passages(resource("search-world/passages.jsonl"))}
    assert found and all(any(text in content for text in shipped) for content in found)


CHECKS: dict[str, Callable[[Path, str], None]] = {
    "channel": the_channel,
    "preset": the_preset,
    "judge": the_judge,
    "environment": the_environment,
    "retriever": the_retriever,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_adds_works_as_it_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    installed(page, tmp_path)
    blocks = [text for language, text in FENCE.findall(page.read_text(encoding="utf-8")) if language == "sh"]
    printed = [run(words, tmp_path) for text in blocks for words in shell_lines(text)]
    CHECKS[page.stem](tmp_path, printed[-1])


def test_every_kind_of_part_has_a_page() -> None:
    assert {page.stem for page in PAGES} == set(CHECKS)
