"""Cards as files: what is refused by name, who is kept for tests, what other shapes are read, and the shipped ones."""

import json
from collections import Counter

import pytest
import yaml
from tests.support_cards import card

from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.scenario.cards import cards_text, load_cards
from dialrl.scenario.split import assign_split, refuse_test_cards
from dialrl.scenario.support_card import judge_view, read_card
from dialrl.state.rubric import load_rubric


def write(path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


# errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic": None}, "field 'topic'"),
        ({"person": {"name": "Ada"}}, "field 'person.age' is missing"),
        ({"priorities": {"C": 4}}, "priorities.C is 4"),
        ({"deficit": {"C.1": -1}}, "deficit.C.1 is -1"),
        ({"threshold": "middling"}, "field 'threshold'"),
        ({"stagse": {}}, "unknown field 'stagse'. Did you mean 'stages'?"),
        ({"id": "../up"}, "field 'id'"),
        ({"trigger": ""}, "field 'trigger'"),
    ],
)
def test_an_error_names_the_file_the_card_and_the_field(tmp_path, change, said):
    file = write(tmp_path / "cards.json", [card("fine"), card("bad") | change])
    with pytest.raises(InputError) as error:
        load_cards(file)
    assert "cards.json', number 1" in str(error.value)
    assert said in str(error.value)


def test_a_level_out_of_bounds_is_said_without_the_card_as_python_sees_it(tmp_path):
    with pytest.raises(InputError) as error:
        load_cards(write(tmp_path / "c.json", card("bad") | {"deficit": {"C.1": 5}}))
    assert str(error.value).endswith("card 'bad': field deficit.C.1 is 5; expected a level from 0 to 3")


@pytest.mark.parametrize(
    ("name", "text"), [("c.yaml", ""), ("c.yaml", "# nothing yet\n"), ("c.json", " "), ("c.jsonl", "")]
)
def test_an_empty_file_is_called_empty(tmp_path, name, text):
    with pytest.raises(InputError, match=rf"'.*{name}' cannot be read: it (is empty|holds comments or nothing)"):
        load_cards(write(tmp_path / name, text))


def test_a_fault_of_yaml_names_the_file_and_the_line(tmp_path):
    with pytest.raises(InputError, match=r'in ".*broken\.yaml", line 2'):
        load_cards(write(tmp_path / "broken.yaml", "id: one\nperson: {name: [}\n"))


def test_an_id_that_stands_twice_is_refused_with_both_files(tmp_path):
    write(tmp_path / "a.json", card())
    write(tmp_path / "b.json", card())
    with pytest.raises(InputError, match=r"a\.json' and in .*b\.json"):
        load_cards(tmp_path)


def test_no_cards_and_broken_files_are_said_so(tmp_path):
    with pytest.raises(InputError, match="no cards in"):
        load_cards(tmp_path)
    with pytest.raises(MissingInputError, match="no cards at"):
        load_cards(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        load_cards(write(tmp_path / "x.yaml", "cards: [a: b: c"))


# forms --------------------------------------------------------------------------------------------------------------


def test_one_card_a_list_and_lines_are_the_same_cards(tmp_path):
    one = load_cards(write(tmp_path / "one.json", card()))
    assert load_cards(write(tmp_path / "list.yaml", yaml.safe_dump([card()]))) == one
    assert load_cards(write(tmp_path / "lines.jsonl", json.dumps(card()) + "\n\n")) == one
    assert load_cards(write(tmp_path / "written.yaml", cards_text(one))) == one


def test_a_flat_line_is_a_card(tmp_path):
    flat = {**card()}
    for group in ("person", "memories", "stages"):
        flat |= flat.pop(group)
    flat |= {"gender": "female", "priorities": "C: 2, A: 3, P: 1"}
    assert load_cards(write(tmp_path / "flat.jsonl", flat)) == [read_card(card(), "here")]


MARKDOWN = """# ada
## 1. Identity
- Name: Ada
- **Age**: 41
- Gender: 女
- Occupation: bus driver
- Background: from a port town
- Social personality: brisk
- Inner personality: afraid
- Empathy threshold: 中
- Need priority: C: 2, A: 3, P: 1
- Theme: a move
## Wants to talk about
whether to move
in with her sister
## Hoped reply
that someone sees it
## Hidden thread
she leaves last
## Memories
### Childhood
the locked gate
### 现状
a full suitcase
## 触发场景
the key came: in an envelope
## Story
### 1. Recall
the key
### Reflection
the beds
### Self-examination
why
### Outburst
nobody asked
## Outcome
she decides
## Interlude
she laughs
## Conversation strategy
- answers sideways
- waits
"""


def test_a_markdown_card_is_read_by_its_headings_and_lines(tmp_path):
    (read,) = load_cards(write(tmp_path / "ada.md", MARKDOWN))
    assert read.id == "ada"
    assert (read.person.name, read.person.age, read.person.gender) == ("Ada", 41, "woman")
    assert (read.threshold, read.priorities) == ("mid", {"C": 2, "A": 3, "P": 1})
    assert read.topic == "whether to move in with her sister"
    assert read.trigger == "the key came: in an envelope"
    assert read.memories.told() == {"childhood": "the locked gate", "current": "a full suitcase"}
    assert read.stages.self_examination == "why"
    assert read.strategy == "answers sideways waits"
    with pytest.raises(InputError, match=r"'stages\.outburst' is missing"):
        load_cards(write(tmp_path / "ada.md", MARKDOWN.replace("### Outburst\nnobody asked\n", "")))


# the split ----------------------------------------------------------------------------------------------------------


def test_a_share_of_each_language_is_kept_for_tests_the_same_for_the_same_seed():
    cards = [
        read_card(card(f"{language}-{n}", language=language), "here")
        for language, count in (("en", 10), ("ko", 5))
        for n in range(count)
    ]
    divided = assign_split(cards, 0.2, seed=1)
    assert Counter((one.language, one.split) for one in divided) == {
        ("en", "test"): 2, ("en", "train"): 8, ("ko", "test"): 1, ("ko", "train"): 4
    }  # fmt: skip
    assert assign_split(cards, 0.2, seed=1) == divided
    assert {one.split for one in assign_split(cards, 0.0, seed=1)} == {"train"}


def test_the_guard_knows_a_test_card_by_id_and_by_story():
    test = [read_card(card("ada", split="test"), "here")]
    with pytest.raises(UsageError, match="training card 'ada' is the test card 'ada'"):
        refuse_test_cards([read_card(card("ada", trigger="another"), "here")], test)
    with pytest.raises(UsageError, match="training card 'eve' is the test card 'ada'"):
        refuse_test_cards([read_card(card("eve", trigger="Her sister sent THE key in an envelope!"), "here")], test)
    refuse_test_cards([read_card(card("eve", trigger="something else"), "here")], test)


def test_the_judge_sees_no_strategy_and_no_stages():
    seen = judge_view(card())
    assert set(seen) == {"person", "topic", "hopes", "priorities", "thread", "memories", "trigger"}
    assert judge_view({"need": "A"}) == {"need": "A"}


# the shipped cards --------------------------------------------------------------------------------------------------


def test_the_shipped_cards_are_sixty_in_three_languages_with_crises_and_a_test_split():
    cards = load_cards()
    assert Counter(one.language for one in cards) == {"en": 40, "ko": 10, "zh": 10}
    assert Counter(one.split for one in cards) == {"train": 48, "test": 12}
    assert {one.crisis for one in cards} == {"none", "self_harm", "abuse", "minor"}
    assert min(one.person.age for one in cards) == 16
    assert max(one.person.age for one in cards) == 75
    genders = Counter(one.person.gender for one in cards)
    assert abs(genders["woman"] - genders["man"]) <= 6
    rubric = load_rubric("support")
    for one in cards:
        assert all(need < 0 for need in rubric.deficit_from_levels(one.deficit))
        assert set(one.priorities) == set(rubric.axis_names)
    refuse_test_cards([c for c in cards if c.split == "train"], [c for c in cards if c.split == "test"])
