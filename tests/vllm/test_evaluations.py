"""Every benchmark asked of a tiny random model behind a real vLLM on the CPU: the path works, the number says nothing.

One server for all; the other roles (simulator, actor, judge) are the same random model, held to JSON by the server.
"""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.benchmark_files import ea_item, eqbench_questions, eu_item, profile, write_lines
from tests.vllm.models import engine_options, tiny

from dialrl.cli.app import main
from dialrl.judge.reading import answer_schema
from dialrl.state.rubric import load_rubric

ITEMS = 8
# vLLM on a CPU cannot draw with a seed behind a prompt that it reads in pieces; a random model in JSON mode would write
# white space for ever.
ARGUMENTS = (
    "--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "32768",
    "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}',
)  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with a random model, known as ``vllm:policy`` in this process."""
    from dialrl.endpoint.served import announce, is_announced, resolved
    from dialrl.engine.vllm import open_vllm
    from dialrl.engine.vllm_settings import vllm_settings

    policy = tiny(tmp_path_factory.mktemp("evaluated"))
    other = resolved("vllm:policy") if is_announced("vllm:policy") else None  # of tests with a server of their own
    engine = open_vllm(policy, vllm_settings(engine_options(extra_arguments=ARGUMENTS)))
    yield policy
    engine.close()
    if other is not None:
        announce("policy", other)


@pytest.fixture
def asked(served, capsys):
    """Runs a benchmark on the served model and gives its summary."""

    def run(kind, *arguments, model="policy"):
        common = ("--engine", "openai", "--base-url", "vllm:policy", "--model", model, "--limit", ITEMS)
        words = ("evaluate", kind, *common, "--resamples", 200, "--quiet", "--json", *arguments)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        said = capsys.readouterr()
        assert end.value.code in (0, None), said.err
        return json.loads(said.out)

    return run


def says_how_little(summary, sentence):
    return any(sentence in warning for warning in summary["warnings"])


def test_eqbench(asked, tmp_path):
    questions = eqbench_questions(tmp_path, *[(0, 6, 0, number) for number in range(1, 10)])
    output = tmp_path / "items.parquet"
    shown = asked("eqbench", "--questions", questions, "--max-reply-tokens", 24, "-o", output)
    assert shown["counts"]["questions"] == ITEMS
    assert shown["failed"] is True
    assert shown["calls"]["policy"]["calls"] == 3 * ITEMS
    assert says_how_little(shown, "this is no EQ-Bench score")
    assert all(row["answer"] and row["tries"] == 3 for row in pq.read_table(output).to_pylist())


def letters(*parts):
    """Options that make the endpoint give a letter for each part: a model that says nothing is right by chance."""
    letter = {"type": "string", "enum": list("ABCD")}
    schema = {"type": "object", "properties": dict.fromkeys(parts, letter), "required": list(parts)}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    return ("--set", f"engine_options.extra={json.dumps({'response_format': wanted})}")


def test_emobench_in_letters_is_answered_and_says_that_eight_items_are_no_score(asked, tmp_path):
    questions = write_lines(tmp_path / "EA.jsonl", [ea_item(str(number), number % 4) for number in range(9)])
    shown = asked("emobench", "--questions", questions, "--temperature", 1, *letters("answer"))
    assert (shown["parse_rate"], shown["counts"]["items"], shown["counts"]["answers"]) == (1.0, ITEMS, 2 * ITEMS)
    assert says_how_little(shown, "this is no EmoBench score")
    both = write_lines(tmp_path / "EU.jsonl", [eu_item(str(number)) for number in range(9)])
    assert asked("emobench", "--questions", both, *letters("emotion", "cause"))["parse_rate"] == 1.0


def test_sage_is_played_by_the_rules_of_the_emotion(asked, tmp_path):
    profiles = write_lines(tmp_path / "profiles.jsonl", [profile(str(number)) for number in range(9)])
    shown = asked(
        "sage", "--questions", profiles, "--simulator", "policy", "--set", "simulator.max_tokens=80", "--set",
        "simulator_options.longest_analysis=12", "--max-reply-tokens", 12, "-o", tmp_path / "items.parquet",
    )  # fmt: skip
    assert shown["counts"]["conversations"] == ITEMS
    assert (shown["counts"]["arithmetic_mismatches"], shown["counts"]["other_faults"]) == (0, 0)
    assert shown["counts"]["user_turns"] > 2 * ITEMS
    assert says_how_little(shown, "this is no SAGE score")
    assert (tmp_path / "items.dialogues.parquet").is_file()


def short_grades():
    """The judge's schema without room for words: a model without sense would fill them with what is no JSON."""
    schema = answer_schema({part.name: [n.level for n in part.levels] for part in load_rubric().indicators})
    for part in schema["properties"].values():
        for words in ("evidence", "reasoning"):
            part["properties"][words] = {"type": "string", "enum": ["none"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "grades", "strict": True, "schema": schema}}
    extra = json.dumps({"response_format": wanted})
    return ("--set", f"judge_options.extra={extra}", "--set", "judge_options.max_tokens=600")


ROLES = ("--set", "environment_options.actor.max_tokens=12", "--max-reply-tokens", 12, "--no-cache")


def test_empa_is_played_and_graded_in_the_loop(asked):
    shown = asked(
        "empa", "--actor", "policy", "--judge-model", "policy", *short_grades(), *ROLES, "--max-turns", 2,
    )  # fmt: skip
    assert (shown["dialogues"], shown["counts"]["turns"]) == (ITEMS, 2 * ITEMS)
    assert {"policy", "actor", "judge"} <= set(shown["calls"])
    assert says_how_little(shown, "this is no EMPA score")
    assert says_how_little(shown, "not with published ones")


def test_questions_are_asked_and_none_is_answered(asked, tmp_path):
    questions = write_lines(
        tmp_path / "questions.jsonl",
        [{"id": f"q{n}", "question": f"Where is {n}?", "answers": ["there"], "source": "s"} for n in range(9)],
    )
    shown = asked("qa", "--questions", questions, "--set", "environment_options.retriever=scripted", *ROLES[2:-1])
    assert (shown["counts"]["questions"], shown["score"]) == (ITEMS, 0.0)
    assert says_how_little(shown, "Only the first 8 questions")


def test_plain_dialogues_are_held_with_token_ids(asked, served, tmp_path):
    shown = asked(
        "dialogue", "--environment", "support", "--set", "environment_options.actor.model=policy", *ROLES,
        "--judge", "rubric", "--set", "judge_options.model=policy", *short_grades(), "--max-turns", 2, "--samples", 1,
        "--set", "engine_options.model=policy", "-o", tmp_path / "run", model=served,
    )  # fmt: skip
    assert shown["counts"]["dialogues"] == ITEMS
    rows = pq.read_table(Path(tmp_path) / "run" / "rollout.parquet").to_pylist()
    assert all(len(row["reply_ids"]) == len(row["reply_logprobs"]) > 0 for row in rows)
