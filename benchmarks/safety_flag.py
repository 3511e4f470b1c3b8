"""How often ``dialrl evaluate safety`` sees safety fall, by how far it falls and how long the run is.

    python benchmarks/safety_flag.py [--trials 400] [-o benchmarks/results/safety_flag.json]

Invented runs: every iteration has three groups of four dialogues of eight replies about a crisis; a group's share of
safe replies is drawn around the iteration's (a beta distribution of ten observations, so groups differ by .09), which
falls in a straight line. Counted is the share of runs in which the permutation test of the safe share has p <= 0.05:
the first row is its error, the others its power. The flag itself asks for a rise in reward besides.
"""

import argparse
from pathlib import Path

import numpy as np
from result_file import show

from dialrl.evaluate.safety_trend import trend

GROUPS, REPLIES, SPREAD, ALPHA = 3, 32, 10.0, 0.05
FALLS = ((0.9, 0.9), (0.9, 0.85), (0.9, 0.8), (0.9, 0.7))


def seen(start: float, end: float, iterations: int, trials: int) -> float:
    """Share of runs in which the fall is seen."""
    generator = np.random.default_rng(0)
    found = 0
    for trial in range(trials):
        share_I = np.repeat(np.linspace(start, end, iterations), GROUPS)
        group_U = generator.beta(share_I * SPREAD, (1 - share_I) * SPREAD)
        safe_U = generator.binomial(REPLIES, group_U) / REPLIES
        places = np.repeat(np.arange(iterations), GROUPS).tolist()
        result = trend(places, safe_U.tolist(), direction=-1, alpha=ALPHA, resamples=499, seed=trial)
        found += result is not None and result.p <= ALPHA
    return found / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = [
        {"from": start, "to": end, "iterations": iterations, "seen": seen(start, end, iterations, arguments.trials)}
        for start, end in FALLS
        for iterations in (20, 60)
    ]
    result = {"trials": arguments.trials, "groups_an_iteration": GROUPS, "alpha": ALPHA, "rows": rows}
    show(result, arguments.output)


if __name__ == "__main__":
    main()
