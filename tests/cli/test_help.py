"""Help is there for every command, and costs no heavy import."""

import subprocess
import sys

import pytest

from dialrl.cli.app import COMMANDS, asked_command

SUBCOMMANDS = [
    ("evaluate", "empa"), ("evaluate", "dialogue"), ("import", "empa"), ("import", "turns"), ("scenarios", "list"),
    ("scenarios", "show"),
]  # fmt: skip
EVERY = [(name,) for name in COMMANDS] + SUBCOMMANDS

# Asks for the help of every command in one process, then says which heavy packages that loaded.
PROGRAM = """
import contextlib, io, sys
from dialrl.cli import main

heavy = ("torch", "transformers", "vllm", "pyarrow", "pandas", "numpy", "jinja2")
print("import dialrl.cli:", *[name for name in heavy if name in sys.modules])
for words in {words}:
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert "Usage" in text.getvalue(), words
    print(*words, "--help:", *[name for name in heavy if name in sys.modules])
"""


def test_no_help_loads_a_heavy_package():
    words = [list(command) for command in ((), *EVERY)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + len(EVERY)
    assert [line for line in lines if not line.endswith(":")] == []


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_command_explains_itself(run, command):
    ended = run(*command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"Usage: dialrl {' '.join(command)}" in ended.out


def test_the_overview_names_every_command_in_its_panel(run):
    ended = run("--help")
    assert ended.code == 0
    assert [name for name in COMMANDS if name not in ended.out] == []
    assert "The pipeline, stage by stage" in ended.out


def test_without_arguments_the_overview_is_shown(run):
    assert "Usage: dialrl" in run().out


def test_the_version_is_printed(run):
    assert run("--version").out.startswith("dialrl 0.")


def test_help_tells_defaults_bounds_and_descriptions_of_the_configuration(run):
    text = " ".join(run("returns", "--help").out.replace("│", " ").split())
    assert "--gamma" in text
    assert "Discount a turn. [default: 0.85]" in text
    assert "[default: fill]" in text
    text = " ".join(run("rollout", "--help").out.replace("│", " ").split())
    assert "0: all. Above 0: no training. [default: 0]" in text
    assert "Times a dialogue is tried before its failure is recorded. [default: 2]" in text


def test_an_unknown_command_or_option_is_a_usage_error(run):
    assert run("rolout").code == 2
    ended = run("returns", "x.parquet", "-o", "y.parquet", "--gama", "1")
    assert ended.code == 2
    assert "No such option: --gama" in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], None),
        (["--help"], None),
        (["returns", "--help"], "returns"),
        (["--version"], None),
        (["-h", "judge"], "judge"),
    ],
)
def test_the_command_is_the_first_word_that_is_no_option(arguments, command):
    assert asked_command(arguments) == command
