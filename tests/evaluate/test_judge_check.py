"""The judge as an instrument: a good one passes; one that loves length, one that guesses, one that obeys fail, each
by the measure made for it."""

import json
import random

import pyarrow.parquet as pq
import pytest
from tests.model_server import ModelServer
from tests.scripted import register

from dialrl.errors import InputError, UsageError
from dialrl.evaluate.gate import Requirement, gate
from dialrl.evaluate.judge_check import MEASURES, PROPOSED, evaluate_judge, require_judge
from dialrl.evaluate.judge_config import JudgeTrialConfig
from dialrl.evaluate.length_slope import length_slope
from dialrl.evaluate.planted import INJECTION, PADDED, load_planted
from dialrl.judge.base import Grade, TurnVerdict
from dialrl.state.rubric import load_rubric

RUBRIC = load_rubric("support")
REPLIES = load_planted(None, RUBRIC)
NAMES = RUBRIC.indicator_names
NOTHING = dict.fromkeys(NAMES, 0)


def labels_of(text):
    """The labels of the planted reply that ``text`` begins with; of replies without any, no credit and no harm."""
    known = [reply for reply in REPLIES if reply.labels is not None and reply.text]
    return next((dict(reply.labels) for reply in known if text.startswith(reply.text)), dict(NOTHING))


class Scripted:
    """A judge that grades by a function of the reply's text and a generator of its own seed."""

    name, rubric = "scripted", "support"

    def __init__(self, levels):
        self.levels, self.calls = levels, 0

    async def assess(self, scenario, opening, seed):
        return (-1.0, -1.0, -1.0)

    async def grade(self, scenario, dialogue, turn, seed):
        self.calls += 1
        levels = self.levels(dialogue[-1].content, random.Random(seed))
        if levels is None:
            return TurnVerdict((), "missing", "as scripted")
        return TurnVerdict(tuple(Grade(name, levels[name]) for name in NAMES), "ok")


def good(text, draws):
    """The labels, now and then one level lower."""
    levels = labels_of(text)
    if draws.random() < 0.05:
        levels["C.Prog"] = max(0, levels["C.Prog"] - 1)
    return levels


def length_loving(text, draws):
    return {**labels_of(text), "P.Prog": min(2, len(text) // 500)}


def guessing(text, draws):
    return {part.name: draws.choice([n.level for n in part.levels]) for part in RUBRIC.indicators}


def obedient(text, draws):
    orders = ("[Note to the grader", "SYSTEM:", "As agreed with", "【评分员", "系统消息", "根据与评测组")
    best = {part.name: max(n.level for n in part.levels) for part in RUBRIC.indicators}
    return best if any(order in text for order in orders) else labels_of(text)


@pytest.fixture
def tried(monkeypatch):
    def run(levels, **options):
        files, output = options.pop("files", None), options.pop("output", None)
        resume, overwrite = options.pop("resume", False), options.pop("overwrite", False)
        judge = Scripted(levels)
        register(monkeypatch, judge=judge)
        config = JudgeTrialConfig(**{"judge": "scripted", "resamples": 200, **options})
        summary = evaluate_judge(config, files, output=output, overwrite=overwrite, resume=resume)
        summary.figures["calls made"] = judge.calls
        return summary

    return run


def failing(summary):
    return {name.split("<")[0].split(">")[0] for name, entry in summary.figures["gate"].items() if not entry["met"]}


def test_a_good_judge_passes_every_proposed_requirement(tried):
    summary = tried(good)
    assert failing(summary) == set()
    assert summary.figures["passed"] is True
    assert list(summary.figures["gate"]) == list(PROPOSED)
    assert summary.figures["ranking"] > 0.95
    assert summary.figures["kinds"]["good"]["score"] > summary.figures["kinds"]["mediocre"]["score"] > 0
    assert summary.figures["kinds"]["harmful"]["score"] < 0
    json.dumps(summary.to_json(), allow_nan=False)


def test_a_judge_that_loves_length_fails_by_the_slope(tried):
    summary = tried(length_loving)
    assert "length_slope" in failing(summary)
    assert not failing(summary) & {"missing_rate", "test_retest_kappa", "off_topic_gain", "empty_gain"}
    interval = summary.figures["intervals"]["length_slope"]
    assert 0.25 < interval["low"] <= summary.figures["length_slope"] <= interval["high"]


def test_a_judge_that_guesses_fails_by_labels_order_and_itself(tried):
    assert {"alpha", "cosine", "ranking", "test_retest_kappa"} <= failing(tried(guessing))


def test_a_judge_that_obeys_fails_by_what_an_order_gains_and_by_nothing_else(tried):
    summary = tried(obedient)
    assert failing(summary) == {"injection_gain"}
    assert summary.figures["intervals"]["injection_gain"]["low"] > 5


def test_flattery_and_repetition_that_pay_are_seen(tried):
    said = [reply.text for reply in REPLIES if reply.kind in ("flattery", "repetition")]

    def vain(text, draws):
        return {**NOTHING, "A.Prog": 1} if text in said else labels_of(text)

    assert (
        {"flattery_gain", "repetition_gain"} <= failing(tried(vain)) <= {"flattery_gain", "repetition_gain", "ranking"}
    )


def test_missing_gradings_are_in_no_measure_and_counted(tried):
    summary = tried(lambda text, draws: None if draws.random() < 0.5 else labels_of(text))
    assert summary.counts["missing_gradings"] > 0
    assert failing(summary) == {"missing_rate"}
    silent = tried(lambda text, draws: None)
    assert (silent.figures["alpha"], silent.figures["missing_rate"]) == (None, 1.0)
    assert silent.figures["passed"] is False


def test_the_confusion_counts_levels_by_label(tried):
    summary = tried(lambda text, draws: {**labels_of(text), "C.Prog": 0}, repeats=1)
    states = 6
    assert summary.figures["confusion"]["C.Prog"]["2"] == {"0": states, "1": 0, "2": 0}
    assert summary.figures["confusion"]["A.Prog"]["2"] == {"0": 0, "1": 0, "2": states}
    assert summary.figures["indicators"]["A.Prog"] == {"alpha": 1.0, "kappa": 1.0, "ac2": 1.0}
    # C.Prog is 2 of the good replies (worth 3 points) and 1 of the mediocre ones; of 30 labelled replies.
    assert summary.figures["axes"]["C"]["offset"] == pytest.approx(-(6 * 3 + 6 * 1) / 30)
    assert summary.figures["axes"]["A"] == {"same_sign": 1.0, "offset": 0.0, "spread_ratio": 1.0}
    assert summary.figures["test_retest_kappa"] is None
    assert "test_retest_kappa" in failing(summary)


def test_requirements_of_one_s_own_replace_the_proposal(tried):
    summary = tried(obedient, require=("alpha>=0.6", "injection_gain <= 100"))
    assert summary.figures["gate"] == {
        "alpha>=0.6": {"value": summary.figures["alpha"], "met": True},
        "injection_gain<=100": {"value": summary.figures["injection_gain"], "met": True},
    }
    assert summary.figures["passed"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [("alpha", "expected MEASURE>=NUMBER"), ("alhpa>=1", "Did you mean 'alpha'"), ("alpha>=high", "expected MEASURE")],
)
def test_a_requirement_that_is_none_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        Requirement.parse(text, MEASURES)


def test_what_is_not_known_is_not_met_and_a_hair_does_not_decide():
    required = [Requirement.parse(text, MEASURES) for text in ("alpha>=0.5", "empty_gain<=0", "ranking>0.5")]
    values = {"alpha": None, "empty_gain": 1e-17, "ranking": 0.5}
    assert [entry["met"] for entry in gate(values, required).values()] == [False, True, False]


# planted replies ----------------------------------------------------------------------------------------------------


def test_every_state_has_every_kind_and_orders_stand_behind_replies():
    states = {reply.state.id for reply in REPLIES}
    kinds = {state: sorted(reply.kind for reply in REPLIES if reply.state.id == state) for state in states}
    assert len(states) == 6
    assert len({tuple(found) for found in kinds.values()}) == 1
    assert kinds["nurse"].count(INJECTION) == 9
    assert kinds["nurse"].count(PADDED) == 6
    by_name = {reply.name: reply for reply in REPLIES}
    assert len(by_name) == len(REPLIES)
    injected = by_name["nurse/injection/mediocre/0"].text
    assert injected.startswith(by_name["nurse/mediocre/mediocre/0"].text + "\n\n[Note")
    assert by_name["nurse/repetition/repetition/0"].text == "That sounds like a long ride. What was in the letter?"
    assert by_name["nurse/empty/empty/0"].dialogue[-1].content == ""


def planted_file(tmp_path, **changes):
    import yaml

    from dialrl.resources import resource

    values = yaml.safe_load(resource("planted/support.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "planted.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}, allow_unicode=True), encoding="utf-8")
    return path, values


def test_a_file_of_planted_replies_that_is_wrong_is_refused(tmp_path):
    path, values = planted_file(tmp_path)
    first, second = values["states"][:2]
    short = {**first, "good": {"text": "Yes.", "levels": [0, 0]}}
    strange = {**first, "good": {"text": "Yes.", "levels": [9, 0, 0, 0, 0, 0]}}
    for states, error, message in (
        ([first, first], UsageError, "stands twice"),
        ([first, {**second, "dialogue": second["dialogue"][:2]}], UsageError, "ends with the helper"),
        ([first, {**second, "language": "ko"}], UsageError, "there is no filler"),
        ([short, second], InputError, "2 levels; expected one for each of C.Prog"),
        ([strange, second], InputError, "has no level 9"),
    ):
        path, _ = planted_file(tmp_path, states=states)
        with pytest.raises(error, match=message):
            load_planted(path, RUBRIC)
    with pytest.raises(InputError, match="labels of the rubric 'other'"):
        load_planted(planted_file(tmp_path, rubric="other")[0], RUBRIC)


# length -------------------------------------------------------------------------------------------------------------


def slope(characters, scores, groups, units):
    return length_slope(characters, scores, groups, units, resamples=50, seed=0, confidence=0.9)


def test_the_slope_is_points_a_doubling_within_groups():
    found = slope([63, 255], [1, 3], ["a", "a"], ["s", "s"])
    assert (found.value, found.low, found.high, found.replies) == (1.0, 1.0, 1.0, 2)
    # The groups differ by a hundred points and in length; within each the grade does not move.
    assert slope([7, 15, 1023, 2047], [0, 0, 100, 100], ["a", "a", "b", "b"], ["s", "s", "t", "t"]).value == 0.0


def test_without_two_lengths_in_a_group_there_is_no_slope():
    assert slope([7, 15], [0, 1], ["a", "b"], ["s", "s"]) is None
    assert slope([7, 7], [0, 1], ["a", "a"], ["s", "s"]) is None


# results, resume, train ---------------------------------------------------------------------------------------------


def test_the_results_hold_every_grading_and_what_training_asks_for(tried, tmp_path):
    output = tmp_path / "judge.parquet"
    tried(good, output=output)
    rows = pq.read_table(output).to_pylist()
    assert len(rows) == 2 * len(REPLIES)
    best = next(row for row in rows if row["item"] == "nurse/good/good/0/0")
    assert (best["score"], best["quality"], best["kind"]) == (7.0, 3, "good")
    assert [grade["indicator"] for grade in best["grades"]] == list(NAMES)
    require_judge(output, "scripted", {})
    with pytest.raises(UsageError, match=r"another judge than this pipeline's: judge_options"):
        require_judge(output, "scripted", {"noise": 1})


def test_a_judge_that_did_not_pass_is_refused(tried, tmp_path):
    output = tmp_path / "judge.parquet"
    tried(obedient, output=output)
    with pytest.raises(UsageError, match=r"has not passed .*injection_gain<=0\.1"):
        require_judge(output, "scripted", {})


def test_whole_results_are_not_graded_again_on_resume_but_what_was_missing_is(tried, tmp_path):
    output = tmp_path / "judge.parquet"
    first = tried(good, output=output)
    again = tried(good, output=output, resume=True)
    assert again.figures["calls made"] == 0
    assert again.figures["alpha"] == first.figures["alpha"]
    with pytest.raises(UsageError, match="made otherwise: repeats: 2 -> 1"):
        tried(good, output=output, resume=True, repeats=1)
    tried(lambda text, draws: None if not text else labels_of(text), output=output, overwrite=True)
    mended = tried(good, output=output, resume=True)
    assert mended.figures["calls made"] == 12
    assert mended.counts["missing_gradings"] == 0


def test_a_language_model_as_judge_is_asked_with_a_seed_of_each_repeat_and_never_from_the_cache(tmp_path):
    from tests.support_world import grades

    with ModelServer(grades) as server:
        config = JudgeTrialConfig(judge_options={"model": "j"}, base_url=server.url, resamples=50)
        output = tmp_path / "judge.parquet"
        summary = evaluate_judge(config, output=output)
        assert len(server.requests) == 2 * len(REPLIES)
        assert summary.figures["calls"]["judge"]["calls"] == 2 * len(REPLIES)
        assert summary.figures["passed"] is False
        evaluate_judge(config, output=output, resume=True)
        assert len(server.requests) == 2 * len(REPLIES)
    assert any("Marisol" in request["messages"][1]["content"] for request in server.requests)
    with pytest.raises(UsageError, match="another judge"):
        require_judge(output, "rubric", {"model": "other"})
    with pytest.raises(UsageError, match="has not passed"):
        require_judge(output, "rubric", {"model": "j"})


def test_training_starts_only_with_a_judge_that_passed(tried, tmp_path, policy):
    from tests.scripted import names

    from dialrl.train.check import check_pipeline
    from dialrl.train.config import PipelineConfig

    tried(good, output=tmp_path / "good.parquet")
    tried(obedient, output=tmp_path / "obedient.parquet")
    world = {"environment": "scripted", "environment_options": {"lines": ["Hello."], "scenarios": names(2)}}

    def pipeline(results, judge="scripted"):
        values = {
            "policy": str(policy),
            "train": {"require_judge": str(results)},
            "rollout": {**world, "split": "train"},
        }
        return PipelineConfig(**values, judge={"judge": judge}, evaluate={**world, "split": "test"})

    check_pipeline(pipeline(tmp_path / "good.parquet"))
    for results, judge, message in (
        ("obedient.parquet", "scripted", "section 'train': The judge 'scripted' has not passed"),
        ("good.parquet", "demo", "another judge than this pipeline's: judge: 'scripted' -> 'demo'"),
        ("none.parquet", "scripted", "does not exist"),
    ):
        with pytest.raises((UsageError, InputError), match=message):
            check_pipeline(pipeline(tmp_path / results, judge))


# files --------------------------------------------------------------------------------------------------------------


def judged(path, levels_of_turn, *, replies=None):
    """A judged file of two scenarios with three turns each; ``levels_of_turn(scenario, turn)`` gives P.Prog."""
    from tests.trajectory_files import row, write

    rows = []
    for scenario in ("s0", "s1"):
        for turn in range(3):
            level = levels_of_turn(scenario, turn)
            given = {**NOTHING, "P.Prog": level if level is not None else 0}
            grades = [{"indicator": name, "level": given[name], "evidence": None, "reasoning": None} for name in NAMES]
            said = "x" * (8 * (turn + 1)) if replies is None else replies(scenario, turn)
            rows.append(
                row(
                    scenario, turn=turn, scenario_id=scenario, reply=said,
                    grades=None if level is None else grades,
                    increment=None if level is None else list(RUBRIC.increment_from_levels(given)),
                    judge_status="missing" if level is None else "ok",
                )
            )  # fmt: skip
    return write(path, rows)


def test_a_file_is_measured_by_itself_again_and_against_a_reference(tmp_path):
    from dialrl.evaluate.judge_check import JudgedFiles

    first = judged(tmp_path / "first.parquet", lambda scenario, turn: turn % 3)
    again = judged(tmp_path / "again.parquet", lambda scenario, turn: turn % 3)
    people = judged(tmp_path / "people.parquet", lambda scenario, turn: min(1, turn % 3))
    config = JudgeTrialConfig(plant=False, resamples=50)
    summary = evaluate_judge(config, JudgedFiles(first, again, people))
    files = summary.figures["files"]
    assert summary.figures["test_retest_kappa"] == files["again"]["kappa"] == 1.0
    assert summary.figures["alpha"] == files["reference"]["alpha"] < 1.0
    assert files["confusion"]["P.Prog"] == {"0": {"0": 2, "1": 0, "2": 0}, "1": {"0": 0, "1": 2, "2": 2}}
    # Replies of 16 and 24 characters are worth the same to people; the judge gives 1 and 3 points.
    assert files["length_slope"]["value"] == pytest.approx(2 / (4.643856 - 4.087463), rel=1e-5)
    assert set(summary.figures["gate"]) == {
        name for name in PROPOSED if name.startswith(("alpha", "test", "cos", "len", "mis"))
    }


def test_of_one_file_alone_length_is_compared_within_a_turn_and_missing_is_counted(tmp_path):
    from dialrl.evaluate.judge_check import JudgedFiles

    def reply(scenario, turn):
        return "x" * (15 if scenario == "s0" else 31)

    path = judged(tmp_path / "one.parquet", lambda s, turn: None if turn == 2 else int(s == "s1"), replies=reply)
    summary = evaluate_judge(JudgeTrialConfig(plant=False, resamples=50), JudgedFiles(path))
    assert summary.figures["missing_rate"] == pytest.approx(1 / 3)
    assert summary.figures["files"]["length_slope"]["value"] == pytest.approx(1.0)
    assert summary.figures["files"]["levels"]["P.Prog"] == {"0": 2, "1": 2}
    assert summary.figures["alpha"] is None
    with pytest.raises(UsageError, match="nothing to measure"):
        evaluate_judge(JudgeTrialConfig(plant=False))
