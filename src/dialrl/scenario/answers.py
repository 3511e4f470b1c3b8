"""Answers compared as words: the F1 that a search policy is trained on, and the F1 and exact match it is reported by.

Two definitions, always named. *Word-set F1* (training, IGPO): lower case, punctuation to spaces, articles kept, words
as a set. *SQuAD F1* and *exact match* (evaluation): lower case, punctuation and articles taken out, words counted as
often as they stand. Source: arXiv 2510.14967; Rajpurkar et al. 2016. Pure text, no files.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_TO_SPACES = str.maketrans(dict.fromkeys(string.punctuation, " "))
_OUT = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def answer_words(text: str) -> list[str]:
    """Lower-cased words, punctuation turned into spaces. Example: "Wool-merchant." -> ["wool", "merchant"]."""
    return text.lower().translate(_TO_SPACES).split()


def squad_words(text: str) -> list[str]:
    """Lower-cased words, punctuation and articles taken out. Example: "The U.S.A." -> ["usa"]."""
    return _ARTICLES.sub(" ", text.lower().translate(_OUT)).split()


def word_set_f1(prediction: str, answer: str) -> float:
    """F1 of the two sets of words.

    Example: "wool merchant and trader" against "Wool merchant.": precision 2/4, recall 2/2, F1 0.6667.
    """
    return _f1(Counter(set(answer_words(prediction))), Counter(set(answer_words(answer))), prediction, answer)


def squad_f1(prediction: str, answer: str) -> float:
    """F1 of the words as often as they stand. Example: "New York New York" against "New York": 2/4, 2/2, 0.6667."""
    return _f1(Counter(squad_words(prediction)), Counter(squad_words(answer)), prediction, answer)


def exact_match(prediction: str, answer: str) -> float:
    """1.0 where the words in the SQuAD manner are the same, else 0.0. Example: "the Wool merchant" -> 1.0."""
    words = squad_words(prediction)
    return float(words == squad_words(answer) and (bool(words) or _same(prediction, answer)))


def best_over(measure: Callable[[str, str], float], prediction: str, answers: Sequence[str]) -> float:
    """The best of ``measure`` over all accepted answers; 0 where there is none."""
    return max((measure(prediction, answer) for answer in answers), default=0.0)


def normalised(text: str) -> str:
    """What decides whether two aliases are the same: their words, or the text itself where it has none."""
    return " ".join(answer_words(text)) or text.strip().lower()


def distinct_aliases(aliases: Sequence[str], limit: int) -> tuple[list[str], int]:
    """The first ``limit`` aliases that differ after normalising, in order, and how many were left out.

    Example: ["New York", "new york!", "NYC"] with limit 16 -> (["New York", "NYC"], 1). Empty aliases are left out too.
    """
    first = {normalised(alias): alias for alias in reversed(aliases) if alias.strip()}
    in_order = dict.fromkeys(normalised(alias) for alias in aliases if alias.strip())
    kept = [first[key] for key in in_order][:limit]
    return kept, len(aliases) - len(kept)


def _f1(given: Counter[str], wanted: Counter[str], prediction: str, answer: str) -> float:
    """F1 of two bags of words; where one of them has no words, 1.0 if the texts are the same and 0.0 if not."""
    if not given or not wanted:
        return float(_same(prediction, answer))
    shared = (given & wanted).total()
    return 2.0 * shared / (given.total() + wanted.total())


def _same(prediction: str, answer: str) -> bool:
    return prediction.strip().lower() == answer.strip().lower() != ""
