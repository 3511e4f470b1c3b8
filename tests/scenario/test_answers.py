"""Answers compared as words: both F1 definitions and exact match, with values worked out by hand."""

import pytest

from dialrl.scenario.answers import (
    answer_words,
    best_over,
    distinct_aliases,
    exact_match,
    squad_f1,
    squad_words,
    word_set_f1,
)


@pytest.mark.parametrize(
    ("prediction", "answer", "f1"),
    [
        ("New York New York", "New York", 1.0),
        ("wool merchant and trader", "Wool merchant.", 2 / 3),
        ("the end", "end", 2 / 3),  # articles are kept
        ("U.S.A.", "u s a", 1.0),  # punctuation turns into spaces
        ("Berlin", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("...", "Paris", 0.0),
        ("...", "...", 1.0),
        ("", "", 0.0),
    ],
)
def test_the_f1_of_training_compares_sets_of_words(prediction, answer, f1):
    assert word_set_f1(prediction, answer) == pytest.approx(f1, abs=1e-4)


@pytest.mark.parametrize(
    ("prediction", "answer", "f1", "exact"),
    [
        ("New York New York", "New York", 2 / 3, 0.0),  # words count as often as they stand
        ("the end", "An end!", 1.0, 1.0),  # articles and punctuation are out
        ("U.S.A.", "USA", 1.0, 1.0),
        ("The", "the", 1.0, 1.0),  # nothing but an article: the texts decide
        ("The", "A", 0.0, 0.0),
        ("", "", 0.0, 0.0),
    ],
)
def test_the_f1_of_reports_is_that_of_squad(prediction, answer, f1, exact):
    assert squad_f1(prediction, answer) == pytest.approx(f1)
    assert exact_match(prediction, answer) == exact


def test_the_best_alias_counts_and_without_answers_nothing_does():
    assert best_over(word_set_f1, "NYC", ["New York", "nyc"]) == 1.0
    assert best_over(word_set_f1, "NYC", []) == 0.0


def test_words():
    assert answer_words("Wool-merchant.") == ["wool", "merchant"]
    assert squad_words("The U.S.A.") == ["usa"]


def test_aliases_are_distinct_after_normalising_in_order_and_limited():
    assert distinct_aliases(["New York", "new york!", "NYC", " "], 16) == (["New York", "NYC"], 2)
    assert distinct_aliases(["b", "a", "c"], 2) == (["b", "a"], 1)
    # aliases that are prefixes of each other are different answers; those without words differ by their text
    assert distinct_aliases(["New", "New York", "?!", "!"], 16) == (["New", "New York", "?!", "!"], 0)
