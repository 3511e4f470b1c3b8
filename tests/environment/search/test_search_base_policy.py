"""The builder of the search world's base policy: its tokenizer, and a run of a few steps."""

import json
from collections import Counter

import pytest

from dialrl.environment.search.world.base_policy import build_search_policy, build_tokenizer, measure
from dialrl.environment.search.world.facts import make_facts
from dialrl.environment.search.world.files import passages_text
from dialrl.environment.search.world.speech import ANSWER_BEGIN, CALL_BEGIN, answer, call
from dialrl.environment.search.world.texts import world_questions
from dialrl.model.loading import load_policy
from dialrl.resources import resource


def test_each_word_and_each_tag_is_one_token_and_any_text_comes_back():
    tokenizer = build_tokenizer()
    ids = tokenizer(call("Mira Volen") + answer("Kelm Harbor"), add_special_tokens=False)["input_ids"]
    assert len(ids) == 8
    assert tokenizer.decode(ids[:1]) == CALL_BEGIN
    assert tokenizer.decode(ids[4:5]) == ANSWER_BEGIN
    for text in (call("Zoë's 42 books?"), passages_text()[:500]):
        back = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert back == text


def test_no_question_of_any_world_falls_back_to_bytes():
    tokenizer = build_tokenizer()
    for asked in world_questions(make_facts(9))[::40]:
        text = asked.question.question
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == len(text.split())


def test_a_few_steps_write_a_policy_and_its_report(tmp_path):
    report = build_search_policy(tmp_path / "p", steps=2, questions=4)
    assert (report.dialogues, report.steps, report.parameters < 1_000_000) == (4, 2, True)
    assert json.loads((tmp_path / "p" / "report.json").read_text())["steps"] == 2
    assert (tmp_path / "p" / "model.safetensors").is_file()


@pytest.fixture(scope="module")
def shipped():
    return json.loads(resource("search-policy/report.json").read_text())


def test_the_shipped_policy_copies_and_calls_well_and_answers_too_early(shipped):
    assert (shipped["copied"] >= 0.9, shipped["well_formed"] >= 0.95) == (True, True)
    hops = Counter(one.question.source for one in world_questions(make_facts()) if one.question.split == "test")
    mean = sum(shipped["f1"][name] * number for name, number in hops.items()) / hops.total()
    assert mean <= 0.3  # an oracle has 1
    assert shipped["turns"] < 2


def test_its_report_is_what_one_measures(shipped):
    model, tokenizer = load_policy(resource("search-policy"))
    found = measure(model, tokenizer)
    assert (found.dialogues, found.parameters) == (shipped["dialogues"], shipped["parameters"])
    for name in ("copied", "well_formed", "turns"):
        assert getattr(found, name) == pytest.approx(shipped[name], abs=0.05)
    assert found.f1 == pytest.approx(shipped["f1"], abs=0.05)
