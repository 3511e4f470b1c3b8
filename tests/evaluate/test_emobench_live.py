"""EmoBench asked of a model: what it is shown, how its letters are read, orders, votes, resume, and scoring again."""

import json
import re

import pyarrow.parquet as pq
import pytest
from tests.asked_models import prompt_of, served, settings
from tests.benchmark_files import ea_item, eu_item, write_lines
from tests.model_server import ModelServer

from dialrl.errors import FailureThresholdError, UsageError
from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench import evaluate_emobench
from dialrl.evaluate.emobench_asked import read_letters
from dialrl.evaluate.emobench_items import Part
from dialrl.evaluate.emobench_live import run_emobench

FOUR, SIX = Part("emotion", tuple("wxyz"), 0), Part("cause", tuple("123456"), 0)


@pytest.fixture
def questions(tmp_path):
    return write_lines(tmp_path / "EU.jsonl", [eu_item("1", (2, 3)), eu_item("2", (1, 0), language="zh")])


def run(server, *questions, output=None, overwrite=False, resume=False, **options):
    config = EmoBenchConfig(**settings(server, **options))
    return run_emobench(served(config), questions, config, output=output, overwrite=overwrite, resume=resume)


def choices(prompt):
    """Letter of each choice in a prompt, by its text."""
    return {text: letter for letter, text in re.findall(r"^([A-Z])\. (.*)$", prompt, re.MULTILINE)}


def knowing(body):
    """A model that knows the right choice of every item, wherever it stands."""
    shown = choices(prompt_of(body))
    right = {"emotion": ("Fear", "Anger"), "cause": ("reason 3 of 1", "reason 0 of 2"), "answer": ("choice 1 of e",)}
    wanted = re.findall(r'"(emotion|cause|answer)": "<', prompt_of(body))
    numbered = 1 if "of 2" in prompt_of(body) or "请" in prompt_of(body) else 0
    return json.dumps({name: shown[right[name][numbered if len(right[name]) > 1 else 0]] for name in wanted})


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('{"emotion": "B", "cause": "F"}', (1, 5)),
        ('Well.\n```json\n{"emotion": "A", "cause": "C"}\n```', (0, 2)),
        ('I choose {"emotion": " D ", "cause": "none"}.', (3, None)),
        ('{"emotion": "E", "cause": "G"}', (None, None)),
        ('{"emotion": 1}', (None, None)),
        ("B", (None, None)),
        ("[1]", (None, None)),
        ("", (None, None)),
    ],
)
def test_letters_are_read_from_a_json_object_and_nothing_else(text, places):
    assert read_letters(text, [FOUR, SIX]) == places


def test_a_model_that_knows_is_right_in_every_order_and_language(questions):
    with ModelServer(knowing) as server:
        summary = run(server, questions)
    assert len(server.requests) == 4
    assert {body["temperature"] for body in server.requests} == {0.0}
    assert {name: cell["score"] for name, cell in summary.figures["results"].items()} == {"EU en": 100.0, "EU zh": 100}
    assert summary.figures["by_order"]["EU en"] == {"shipped": 100.0, "order 1": 100.0}
    assert summary.figures["results"]["EU en"]["shuffled"] == 100.0


def test_the_prompt_shows_situation_person_and_choices_in_the_item_s_language(questions):
    with ModelServer(knowing) as server:
        run(server, questions, shuffled_orders=0)
    english, chinese = sorted((prompt_of(body) for body in server.requests), key=lambda text: "请" in text)
    assert "A letter arrives." in english
    assert "Odd" in english
    assert re.search(r"^A\. Joy$", english, re.MULTILINE)
    assert english.endswith('{"emotion": "<letter>", "cause": "<letter>"}')
    assert chinese.endswith('{"emotion": "<字母>", "cause": "<字母>"}')


def test_shuffled_orders_are_asked_as_they_are_scored_and_the_seed_decides_them(questions):
    always_a = lambda body: '{"emotion": "A", "cause": "A"}'  # noqa: E731
    with ModelServer(always_a) as server:
        run(server, questions, languages=["en"])
        run(server, questions, languages=["en"], shuffle_seed=5)
    shipped, first, _, second = (
        [choices(prompt_of(body))[f"reason {n} of 1"] for n in range(4)] for body in _sorted(server)
    )
    assert shipped == list("ABCD")
    assert first != shipped
    assert second != first


def _sorted(server):
    halves = server.requests[:2], server.requests[2:]
    key = lambda body: choices(prompt_of(body))["reason 0 of 1"] + choices(prompt_of(body))["Joy"] != "AA"  # noqa: E731
    return [body for half in halves for body in sorted(half, key=key)]


def test_scoring_2024_votes_over_five_samples_in_four_orders_and_asks_the_emotion_first(questions):
    with ModelServer(knowing) as server:
        summary = run(server, questions, scoring="2024", languages=["en"])
    assert len(server.requests) == 2 * 5 * 4
    assert len({body["seed"] for body in server.requests}) == 40
    assert {body["temperature"] for body in server.requests} == {0.6}
    causes = [prompt_of(body) for body in server.requests if '"cause"' in prompt_of(body)]
    assert len(causes) == 20
    assert all("now feels: Fear" in prompt and "Joy" not in choices(prompt) for prompt in causes)
    assert summary.figures["score"] == 100.0
    assert summary.counts["answers"] == 20


def test_answers_are_kept_raw_and_can_be_scored_again(questions, tmp_path):
    output = tmp_path / "items.parquet"
    with ModelServer(knowing) as server:
        summary = run(server, questions, output=output, shuffle_seed=3)
    rows = pq.read_table(output).to_pylist()
    assert [(one["order"], one["part"]) for one in rows[0]["answers"]] == [(0, ""), (1, "")]
    again = evaluate_emobench([output], [questions], EmoBenchConfig(resamples=50))
    assert again.figures["results"] == summary.figures["results"]
    with pytest.raises(UsageError, match="--questions"):
        evaluate_emobench([output])


def test_what_was_answered_is_not_asked_again_and_what_failed_is(questions, tmp_path):
    output = tmp_path / "items.parquet"
    broken = {"is": True}
    faults = lambda number, body: "500" if broken["is"] and "请" in prompt_of(body) else None  # noqa: E731
    with ModelServer(knowing, faults=faults) as server:
        with pytest.raises(FailureThresholdError, match="1 of 2 items got no answer"):
            run(server, questions, output=output)
        rows = {row["language"]: row for row in pq.read_table(output).to_pylist()}
        assert (rows["zh"]["status"], rows["zh"]["score"], rows["en"]["score"]) == ("failed", None, 100.0)
        broken["is"] = False
        asked = len(server.requests)
        summary = run(server, questions, output=output, resume=True)
        assert len(server.requests) == asked + 2
        assert summary.figures["score"] == 100.0
        run(server, questions, output=output, resume=True)
        assert len(server.requests) == asked + 2


def test_prompts_of_one_s_own_replace_ours_and_are_part_of_what_was_made(questions, tmp_path):
    own = tmp_path / "prompts" / "evaluate"
    own.mkdir(parents=True)
    (own / "emobench.jinja").write_text("{{ scenario }}|{{ parts[0].choices[0].text }}", encoding="utf-8")
    output = tmp_path / "items.parquet"
    with ModelServer(knowing) as server:
        run(server, questions, output=output, shuffled_orders=0, languages=["en"], limit=1)
    with ModelServer(lambda body: "A") as server:
        options = {"shuffled_orders": 0, "languages": ["en"], "limit": 1, "prompts": str(tmp_path / "prompts")}
        with pytest.raises(UsageError, match="made otherwise"):
            run(server, questions, output=output, resume=True, **options)
        summary = run(server, questions, **options)
    assert prompt_of(server.requests[0]) == "A letter arrives.|Joy"
    assert summary.counts["unparsed_items"] == 1


def test_the_limit_takes_the_first_of_each_task_and_language(tmp_path):
    items = write_lines(tmp_path / "EA.jsonl", [ea_item(qid) for qid in "abc"])
    with ModelServer(lambda body: '{"answer": "A"}') as server:
        summary = run(server, items, limit=2)
    assert summary.counts["items"] == 2
    assert any("this is no EmoBench score" in warning for warning in summary.warnings)
