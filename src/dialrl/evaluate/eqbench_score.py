"""EQ-Bench v2: the score of one item and of one run over all items, as pure functions. Files: ``eqbench_data``.

An item asks for the intensity of four emotions, 0 to 10. Its score is 10 - 0.7477 sum f(|answer - reference|), with
f(0) = 0, f(d) = 6.5 / (1 + exp(-1.2 (d - 4))) for small d and f(d) = d for large d; it is never clipped. Up to where d
is small is the *boundary*: the stored official scores need d < 5, the published source says d <= 5. Source: Paech 2023,
arXiv 2312.06281, and docs/benchmarks/eqbench.md.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dialrl.evaluate.statistics import mean_or_none

Block = Literal["first_pass", "revised"]
Answer = Mapping[str, float]

ADJUSTMENT = 0.7477
LEAST_PARSED = 0.8333  # a run with fewer parsed items counts as failed
COMPARABLE_BLOCKS = 0.95  # the revised block counts if it has at least this share of the first pass's parsed items
SCALE = 10  # an item's 0..10 on the published scale


def difference(distance: float, *, five_is_curved: bool = False) -> float:
    """f(d): what a distance between answer and reference costs.

    Example: f(0) = 0; f(4) = 6.5 / 2 = 3.25; f(5) = 5, or 6.5 / (1 + exp(-1.2)) = 4.995 where 5 is curved; f(7) = 7.
    """
    if distance == 0:
        return 0.0
    if distance < 5 or (five_is_curved and distance == 5):
        return 6.5 / (1.0 + math.exp(-1.2 * (distance - 4.0)))
    return distance


def item_score(answer: Answer, reference: Answer, *, five_is_curved: bool = False) -> float:
    """Score of an answer that names the reference's emotions, at most 10, may be below 0.

    Example: references 0, 6, 0, 7 answered 0, 5, 4, 0 -> 10 - 0.7477 (0 + 0.1729 + 3.25 + 7) = 2.2068.
    """
    costs = (difference(abs(answer[name] - value), five_is_curved=five_is_curved) for name, value in reference.items())
    return 10.0 - ADJUSTMENT * sum(costs)


def is_valid(answer: Answer, reference: Answer, *, zeros_count: bool = False) -> bool:
    """True when the answer names exactly the reference's emotions, and (unless ``zeros_count``) one of them above 0."""
    return set(answer) == set(reference) and (zeros_count or any(answer.values()))


@dataclass(frozen=True)
class RunScore:
    """One iteration: its score on the published scale (None: nothing was parsed), from which block, of how many."""

    score: float | None
    block: Block
    parsed: int
    items: int
    first_pass: float | None
    revised: float | None


def is_failed(parsed: int, items: int) -> bool:
    """Fewer items were parsed than the benchmark asks for. Example: 142 of 171 failed, 143 did not."""
    return parsed < LEAST_PARSED * items


def official(first_pass: Sequence[float | None], revised: Sequence[float | None]) -> RunScore:
    """Mean of the parsed items of the better block; None are items that were not parsed.

    Revised counts when its mean is at least the first pass's and it has at least 0.95 of its parsed items.
    Example: first pass 4, 6, None -> 50 of 2 items; revised 8, None, None -> 80 of 1, too few: the score is 50.
    """
    first, second = _parsed(first_pass), _parsed(revised)
    means = (_scaled_mean(first), _scaled_mean(second))
    takes_revised = (
        means[1] is not None
        and (means[0] is None or means[1] >= means[0])
        and len(second) >= COMPARABLE_BLOCKS * len(first)
    )
    if takes_revised:
        return RunScore(means[1], "revised", len(second), len(first_pass), *means)
    return RunScore(means[0], "first_pass", len(first), len(first_pass), *means)


def lm_eval(scores: Sequence[float | None]) -> RunScore:
    """Mean over all items, one that was not parsed counting 0. Example: 4, 6, None -> 100 / 3 = 33.33."""
    parsed = _parsed(scores)
    mean = _scaled_mean([score or 0.0 for score in scores])
    return RunScore(mean, "first_pass", len(parsed), len(scores), mean, None)


def anchors(references: Iterable[Answer], *, five_is_curved: bool = False) -> dict[str, float]:
    """What answering without reading earns: all zeros (raw formula), always 3, and uniform random whole numbers."""
    known = list(references)
    anchored = {"all_zeros": [0.0], "always_3": [3.0], "uniform_random": [float(level) for level in range(11)]}
    return {
        name: SCALE * sum(_expected(reference, levels, five_is_curved) for reference in known) / len(known)
        for name, levels in anchored.items()
    }


def _expected(reference: Answer, levels: Sequence[float], five_is_curved: bool) -> float:
    """Expected score of an answer whose every intensity is drawn from ``levels``."""
    costs = [
        difference(abs(level - value), five_is_curved=five_is_curved)
        for value in reference.values()
        for level in levels
    ]
    return 10.0 - ADJUSTMENT * sum(costs) / len(levels)


def _parsed(scores: Sequence[float | None]) -> list[float]:
    return [score for score in scores if score is not None]


def _scaled_mean(scores: Sequence[float]) -> float | None:
    mean = mean_or_none(scores)
    return None if mean is None else SCALE * mean
