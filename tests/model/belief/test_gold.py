"""Answers as tokens: cut out of the whole text by character offsets."""

import pytest
from tests.toys import CHATML, ToyTokenizer, fast_tokenizer, newline_after_eot

from dialrl.errors import InputError, UsageError
from dialrl.model.belief.gold import GoldLimits, encode_gold

TOKENIZER = fast_tokenizer(CHATML)
BEFORE, AFTER = "<think>done</think>\n<answer>", "</answer>"


def encoded(alias, limits=GoldLimits(), before=BEFORE):  # noqa: B008 - frozen
    return encode_gold(TOKENIZER, alias, before=before, after=AFTER, limits=limits)


@pytest.mark.parametrize("alias", ["exam", "the brother", "New York!", "Zürich 🙂", "東京"])
def test_wrapper_and_answer_are_the_tokens_of_the_whole_text(alias):
    gold = encoded(alias)
    whole = TOKENIZER(BEFORE + alias + AFTER, add_special_tokens=False)["input_ids"]
    joined = [*gold.wrapper_ids, *gold.gold_ids]
    assert whole[: len(joined)] == joined
    assert TOKENIZER.decode(gold.gold_ids) == alias
    assert TOKENIZER.decode(gold.wrapper_ids) == BEFORE


def test_a_token_that_straddles_the_border_belongs_to_the_answer():
    gold = encoded("ink", before="th")  # this tokenizer makes "thin" and "k" of "think"
    assert [TOKENIZER.decode(ids) for ids in (gold.wrapper_ids, gold.gold_ids)] == ["", "think"]


def test_an_answer_longer_than_the_cap_is_refused_or_cut_explicitly():
    long = "hello there " * 20
    with pytest.raises(InputError, match=r"has \d+ tokens; the limit is 8.*overlong: truncate"):
        encoded(long, GoldLimits(8))
    whole = encoded(long, GoldLimits(1000)).gold_ids
    assert encoded(long, GoldLimits(8, "truncate")).gold_ids == whole[:8]


def test_an_answer_without_tokens_is_refused():
    with pytest.raises(InputError, match="has no tokens"):
        encoded("")


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(UsageError, match="no character offsets"):
        encode_gold(ToyTokenizer(newline_after_eot), "he", before="", after="", limits=GoldLimits())
