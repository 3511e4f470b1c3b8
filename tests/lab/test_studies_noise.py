"""Judges with faults: what they make of true levels, and the study that compares presets under them."""

from pathlib import Path

import pytest
from tests.lab.watched import Watched

from dialrl.environment.demo.rules import Levels
from dialrl.environment.demo.scenario import scenarios
from dialrl.errors import OutputExistsError, UsageError
from dialrl.evaluate.study_table import read_table
from dialrl.lab.fast import play_fast
from dialrl.lab.studies_config import FaultyConfig, NoiseConfig
from dialrl.lab.studies_noise import FaultyJudge, fault, judge_of, run_noise

SCENARIO = scenarios("test")[0]
HARM, NOTHING, HELP = Levels(c_neg=-1, p_neg=-1), Levels(), Levels(a_prog=1)
TINY = NoiseConfig(
    presets=("mica", "grpo"),
    settings=("exact", "halo=1"),
    step_sizes=(12.0,),
    tuning_seeds=1,
    seeds=1,
    iterations=2,
    groups=4,
    samples=4,
    evaluate_every=2,
    evaluate_repeats=1,
    jobs=1,
)


def seen(levels: Levels, **faults: float) -> list[Levels | None]:
    """What a judge with these faults makes of the same levels in 200 turns."""
    judge = FaultyJudge(0.0, 0.0, 0, **{"lenient": 0.0, "halo": 0.0, **faults})
    return [judge.seen_levels(levels, SCENARIO, turn, seed=7) for turn in range(200)]


def test_without_faults_the_judge_sees_what_is_so() -> None:
    assert set(seen(HARM)) == {HARM}


def test_a_lenient_judge_overlooks_harm_and_nothing_else() -> None:
    assert set(seen(HARM, lenient=1.0)) == {NOTHING}
    assert set(seen(HELP, lenient=1.0)) == {HELP}
    kept = sum(levels is not None and levels.c_neg == -1 for levels in seen(HARM, lenient=0.25))
    assert 120 <= kept <= 175  # of 200 with probability .75


def test_a_judge_with_a_halo_credits_what_helps_with_nothing() -> None:
    assert set(seen(NOTHING, halo=1.0)) == {Levels(p_prog=1)}
    assert set(seen(HARM, halo=1.0)) == {HARM._replace(p_prog=1)}
    assert set(seen(HELP, halo=1.0)) == {HELP}


def test_a_fault_is_named_with_its_strength() -> None:
    assert fault("lenient=0.5").changes == {"judge_lenient": 0.5}
    for wrong in ("lenient", "lenient=much", "deaf=0.5"):
        with pytest.raises(UsageError, match=r"no judge: expected exact, or noise=, missing=, lenient=, halo="):
            fault(wrong)


def test_a_judge_without_a_fault_makes_the_run_without_that_judge() -> None:
    config = FaultyConfig(iterations=2, groups=4, samples=4, turn_limit=5, evaluate_every=2, evaluate_repeats=1)
    plain, judged = play_fast(config), play_fast(config, judge=judge_of(config))
    assert (plain.weights_FA == judged.weights_FA).all()
    blinded = play_fast(config, judge=judge_of(config.updated(judge_halo=1.0)))
    assert (plain.weights_FA != blinded.weights_FA).any()


def test_the_study_tunes_once_with_an_exact_judge_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = play_fast(FaultyConfig(iterations=0, turn_limit=5)).reference
    monkeypatch.setattr("dialrl.lab.pool.reference_of", lambda limit, extra: exact)  # that of 8 turns takes long
    summary = run_noise(tmp_path / "study", TINY)
    rows = read_table(tmp_path / "study" / "lab.parquet").to_pylist()
    assert {(row["phase"], row["setting"]) for row in rows} == {
        ("tuning", "exact"), ("final", "exact"), ("final", "halo=1"),
    }  # fmt: skip
    assert summary.counts == {"runs": 6, "played_now": 6}
    with pytest.raises(OutputExistsError):
        run_noise(tmp_path / "study", TINY)
    wider = TINY.updated(settings=("exact", "halo=1", "missing=0.5"))
    watched = Watched()
    again = run_noise(tmp_path / "study", wider, resume=True, progress=watched)
    assert again.counts == {"runs": 8, "played_now": 2}
    assert (watched.total["lab noise"], watched.done["lab noise"]) == (2, 2)  # the time left is that of these
