"""The closed set of needs: the card's own, another dialogue's as a control, and distractors."""

import pytest

from dialrl.errors import InputError, UsageError
from dialrl.judge.need_options import need_options
from dialrl.judge.need_sets import NeedSets, quotes
from dialrl.scenario.card import Scenario

CARDS = {
    "a": {"hopes": "to be seen"},
    "b": {"hopes": "to be left alone"},
    "c": {"hopes": "an apology"},
    "d": {"hopes": "to be seen"},
    "e": {"hopes": "eine Pause", "language": "de"},
    "f": {"hopes": "Ruhe", "language": "de"},
}


class Cards:
    """Stands for the environments behind a file."""

    def __init__(self, cards=CARDS):
        self.cards = {name: Scenario(name, "train", card) for name, card in cards.items()}

    def find(self, row):
        return self.cards[row["scenario_id"]]

    def environment(self, name):
        return self

    def scenarios(self, split):
        return list(self.cards.values())


def row(name, environment="support"):
    return {"environment": environment, "scenario_id": name}


def sets(names, cards=CARDS, seed=0, environment="support", **options):
    made = NeedSets(Cards(cards), need_options({"targets": "needs", **options}), seed)
    for name in names:
        made.note(row(name, environment))
    return made


def test_a_set_holds_the_cards_need_and_the_others_of_its_language_once_each():
    made = sets("abcd")
    needs = made.of(row("a"))
    assert needs.candidates == ("an apology", "to be left alone", "to be seen")
    assert needs.candidates[needs.target] == "to be seen"
    german = sets("ef").of(row("e"))
    assert (german.candidates, german.candidates[german.target]) == (("Ruhe", "eine Pause"), "eine Pause")


def test_the_control_permutes_the_needs_of_the_files_dialogues():
    made = sets("abc")
    found = {name: made.of(row(name)) for name in "abc"}
    own = [needs.candidates[needs.target] for needs in found.values()]
    other = [needs.candidates[needs.shuffled] for needs in found.values()]
    assert sorted(own) == sorted(other)
    assert all(mine != others for mine, others in zip(own, other, strict=True))


def test_one_need_alone_in_the_file_has_no_control_but_distractors():
    needs = sets("ad").of(row("a"))
    assert needs.shuffled is None
    assert len(needs.candidates) == 3


def test_as_many_candidates_as_asked_for_the_need_and_its_control_among_them():
    cards = {f"s{n:02d}": {"hopes": f"need number {n}"} for n in range(30)}
    made = sets(cards, cards, candidates=5)
    for name in cards:
        needs = made.of(row(name))
        assert len(set(needs.candidates)) == 5
        assert needs.candidates[needs.target] == cards[name]["hopes"]
        assert needs.shuffled not in (None, needs.target)
    assert made.of(row("s03")) == sets(cards, cards, candidates=5).of(row("s03"))
    assert made.of(row("s03")) != sets(cards, cards, seed=1, candidates=5).of(row("s03"))


def test_the_need_may_stand_in_any_field_of_the_card():
    cards = {name: {"person": {"inward": text}} for name, text in (("a", "tired"), ("b", "angry"))}
    needs = sets("ab", cards, target_field="person.inward").of(row("a"))
    assert needs.candidates[needs.target] == "tired"


def test_a_card_without_the_field_and_an_environment_without_a_default_are_refused():
    with pytest.raises(InputError, match=r"card of 'a' has no text in 'mood' \(got None\).*the card has: hopes"):
        sets("a", target_field="mood")
    with pytest.raises(UsageError, match=r"'ours' holds the hidden need\? .*target_field; a card has: hopes"):
        sets("a", environment="ours")


def test_a_need_that_all_cards_share_tells_nothing_and_is_refused():
    with pytest.raises(InputError, match=r"'a' is the only scenario of 'support' with the need 'rest'.*nothing"):
        sets("a", {"a": {"hopes": "rest"}, "b": {"hopes": "rest"}})


@pytest.mark.parametrize(
    ("line", "characters", "expected"),
    [
        ("I hope for  Permission to be angry", 20, True),  # "permission to be ang"
        ("I have your permission, and I am angry", 20, False),
        ("permission to be", 20, False),
        ("permission to be", 16, True),
    ],
)
def test_a_line_quotes_a_need_when_it_holds_a_stretch_of_it_word_for_word(line, characters, expected):
    assert quotes(line, "permission to be angry without being told", characters) is expected


def test_a_need_shorter_than_the_stretch_cannot_be_quoted():
    assert not quotes("it is all about my brother", "brother", 20)
