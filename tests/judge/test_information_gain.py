"""The judge information-gain on real rollouts of a tiny model: columns, telescoping, options, refusals, resuming."""

import pytest
import torch
from tests.scripted import register
from tests.toys import CHATML, THINKING, tiny_policy
from tests.trajectory_files import read

from dialrl.errors import FailureThresholdError, InputError, UsageError
from dialrl.judge import belief_scorer
from dialrl.judge.belief_options import DEFAULT_WRAPPER, BeliefOptions
from dialrl.judge.belief_scorer import BeliefScorer
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.scenario.card import Scenario
from dialrl.testing import ScriptedEnvironment
from dialrl.trajectory.reader import TrajectoryFile

ANSWERS = {"a": ["exam", "Exam!", "the brother"], "b": ["thinking about a plan"]}


class Asking(ScriptedEnvironment):
    """A scripted user whose scenarios have accepted answers."""

    answers = ANSWERS

    def find(self, scenario_id):
        return Scenario(scenario_id, "train", {"answers": self.answers[scenario_id]})


def environment(**answers):
    made = Asking(["Hello there.", "I hear that.", "That hurts.", "Yes."], scenarios=sorted(ANSWERS))
    made.answers = {**ANSWERS, **answers}
    return made


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("policy"))


def rolled(policy, path, monkeypatch, **options):
    register(monkeypatch, environment=environment())
    config = {"groups": 2, "samples": 2, "max_turns": 3, "max_reply_tokens": 6, **options}
    roll_out(open_policy(policy), path, RolloutConfig(environment="scripted", **config))
    return path


@pytest.fixture
def rollout(policy, tmp_path, monkeypatch):
    return rolled(policy, tmp_path / "rollout.parquet", monkeypatch)


def judged(rollout, policy, name="judge.parquet", *, overwrite=False, resume=False, slim=False, config=None, **options):
    output = rollout.with_name(name)
    settings = JudgeConfig(judge="information-gain", judge_options=options, **(config or {}))
    summary = judge_files(rollout, output, settings, policy=policy, overwrite=overwrite, resume=resume, slim=slim)
    return read(output), summary


def beliefs(rows):
    return [(row["belief_before"], row["belief_after"]) for row in rows]


def test_every_turn_has_the_belief_before_and_after_it_and_gains_telescope(rollout, policy):
    rows, summary = judged(rollout, policy)
    for first in range(0, 12, 3):
        one, two, three = rows[first : first + 3]
        assert one["belief_after"] == two["belief_before"]
        assert two["belief_after"] == three["belief_before"]
        gains = [row["belief_after"] - row["belief_before"] for row in (one, two, three)]
        assert sum(gains) == pytest.approx(three["belief_after"] - one["belief_before"], abs=1e-12)
    assert summary.counts["gains_known"] == 12
    assert (summary.counts["aliases_scored"], summary.counts["aliases_left_out"]) == (3, 1)
    assert {row["belief_alias"] for row in rows if row["scenario_id"] == "a"} <= {"exam", "the brother"}


def test_dialogues_of_a_group_begin_with_one_belief(rollout, policy):
    rows, _ = judged(rollout, policy)
    first = [row["belief_before"] for row in rows if row["turn"] == 0 and row["scenario_id"] == "a"]
    assert first[0] == pytest.approx(first[1], abs=1e-5)


def test_packed_and_one_by_one_write_the_same(rollout, policy):
    packed, _ = judged(rollout, policy, method="packed")
    plain, summary = judged(rollout, policy, "plain.parquet", method="one-by-one")
    for a, b in zip(beliefs(packed), beliefs(plain), strict=True):
        assert a == pytest.approx(b, abs=1e-4)
    assert summary.figures["packed"] is False
    assert summary.figures["attention"] is None


@pytest.mark.parametrize("attention", ["split", "dense"])
def test_every_attention_writes_the_same(rollout, policy, attention):
    usual, summary = judged(rollout, policy)
    assert summary.figures["attention"] == "split"
    other, summary = judged(rollout, policy, "other.parquet", attention=attention)
    assert summary.figures["attention"] == attention
    for a, b in zip(beliefs(usual), beliefs(other), strict=True):
        assert a == pytest.approx(b, abs=1e-4)


def test_a_model_with_an_attention_of_its_own_gets_a_dense_mask_or_no_packed_forward(rollout, policy, monkeypatch):
    agrees = {"split": False, "dense": True}
    monkeypatch.setattr(belief_scorer, "can_branch", lambda model, kind: agrees[kind])
    assert judged(rollout, policy)[1].figures["attention"] == "dense"
    agrees["dense"] = False
    assert judged(rollout, policy, "plain.parquet")[1].figures["packed"] is False
    with pytest.raises(UsageError, match=r"in a packed forward \(attention auto\).*one-by-one"):
        judged(rollout, policy, "refused.parquet", method="packed")


def test_the_belief_is_the_models_log_prob_of_the_answer_after_its_whole_prefix(rollout, policy):
    rows, _ = judged(rollout, policy)
    scorer = BeliefScorer(policy, BeliefOptions())
    row = next(row for row in rows if row["scenario_id"] == "b" and row["turn"] == 0)
    tokenizer = scorer.template.tokenizer
    before = tokenizer(DEFAULT_WRAPPER, add_special_tokens=False)["input_ids"]
    gold = tokenizer("thinking about a plan", add_special_tokens=False)["input_ids"]
    ids = [*row["prompt_ids"], *before, *gold]
    with torch.no_grad():
        logprobs = torch.log_softmax(scorer._model(torch.tensor([ids])).logits[0].double(), dim=-1)
    start = len(ids) - len(gold)
    by_hand = sum(float(logprobs[start + i - 1, token]) for i, token in enumerate(gold)) / len(gold)
    assert row["belief_before"] == pytest.approx(by_hand, abs=1e-4)


def test_the_first_alias_alone_is_never_above_the_best(rollout, policy):
    best, _ = judged(rollout, policy)
    first, summary = judged(rollout, policy, "first.parquet", aliases="first")
    assert all(one[0] <= other[0] + 1e-6 for one, other in zip(beliefs(first), beliefs(best), strict=True))
    assert summary.counts["aliases_left_out"] == 2


def test_segments_of_a_rewriting_template_are_scored_each_in_its_own(tmp_path, monkeypatch):
    policy = tiny_policy(tmp_path / "thinking", chat_template=THINKING)
    path = rolled(policy, tmp_path / "rollout.parquet", monkeypatch, history="template")
    rows, summary = judged(path, policy)
    assert summary.counts["gains_known"] == len(rows)


def test_gains_become_rewards_of_both_papers(rollout, policy, tmp_path):
    rows, _ = judged(rollout, policy)
    for belief in ("log", "probability"):
        output = tmp_path / f"{belief}.parquet"
        config = ReturnsConfig(reward=("information-gain",), belief=belief)
        compute_returns(rollout.with_name("judge.parquet"), output, config)
        gain = read(output)[0]["reward_information-gain"]
        before, after = beliefs(rows)[0]
        expected = after - before if belief == "log" else 2.718281828459045**after - 2.718281828459045**before
        assert gain == pytest.approx(expected, abs=1e-12)


def test_grades_of_another_judge_stay(rollout, policy):
    rows, _ = judged(rollout, policy)
    assert "judge_status" not in rows[0]
    lineage = TrajectoryFile.open(rollout.with_name("judge.parquet")).lineage
    assert [record.stage for record in lineage.records] == ["rollout", "judge"]


# whose belief -------------------------------------------------------------------------------------------------------


def test_another_policy_than_the_rollouts_is_refused_unless_it_is_frozen(rollout, policy, tmp_path):
    other = tiny_policy(tmp_path / "other", seed=5)
    with pytest.raises(UsageError, match=r"'a#?.*/0' was sampled by the policy sha256:.*set scorer to frozen"):
        judged(rollout, other)
    frozen, _ = judged(rollout, other, scorer="frozen")
    own, _ = judged(rollout, policy, "own.parquet")
    assert beliefs(frozen) != beliefs(own)


def test_without_a_policy_there_is_nobody_to_ask(rollout):
    with pytest.raises(UsageError, match="--policy DIRECTORY"):
        judge_files(rollout, rollout.with_name("j.parquet"), JudgeConfig(judge="information-gain"))


# answers ------------------------------------------------------------------------------------------------------------


def test_a_question_without_gold_has_no_belief_and_is_counted(rollout, policy, monkeypatch):
    register(monkeypatch, environment=environment(b=[]))
    with pytest.raises(FailureThresholdError, match="6 of 12 gains are missing"):
        judged(rollout, policy)
    rows, summary = judged(rollout, policy, overwrite=True, config={"max_missing": 1.0})
    assert {row["belief_before"] for row in rows if row["scenario_id"] == "b"} == {None}
    assert summary.counts["scenarios_without_answer"] == 1
    assert "1 scenarios have no answer" in summary.warnings[1]


def test_an_answer_longer_than_the_cap_is_refused_or_cut_explicitly(rollout, policy):
    with pytest.raises(InputError, match=r"the limit is 3"):
        judged(rollout, policy, max_gold_tokens=3)
    rows, _ = judged(rollout, policy, max_gold_tokens=3, overlong="truncate", overwrite=True)
    assert all(row["belief_before"] is not None for row in rows)


def test_scenarios_without_accepted_answers_are_refused(rollout, policy, monkeypatch):
    register(monkeypatch, environment=ScriptedEnvironment(["x"], scenarios=["a", "b"]))
    with pytest.raises(InputError, match="have no accepted answers"):
        judged(rollout, policy)


def test_an_unknown_option_is_named(rollout, policy):
    with pytest.raises(UsageError, match=r"unknown key 'max_alias'\. Did you mean 'max_aliases'\?"):
        judged(rollout, policy, max_alias=3)
    with pytest.raises(UsageError, match="a log-prob, below 0"):
        judged(rollout, policy, token_floor=1.0)


# numbers that are none ----------------------------------------------------------------------------------------------


def broken(monkeypatch, *, until):
    """Beliefs that are NaN while ``until`` says so of the model's precision."""
    right = BeliefScorer._score

    def score(self, model, tasks):
        found = right(self, model, tasks)
        if until(model):
            for belief in found:
                belief[1] = float("nan")
        return found

    monkeypatch.setattr(BeliefScorer, "_score", score)


def test_a_belief_that_is_not_a_number_is_computed_once_more_in_float32(rollout, policy, monkeypatch):
    broken(monkeypatch, until=lambda model: model.dtype == torch.bfloat16)
    _, summary = judged(rollout, policy, precision="bfloat16")
    assert summary.counts["gains_known"] == 12


def test_if_it_stays_the_two_gains_it_touches_are_missing(rollout, policy, monkeypatch):
    broken(monkeypatch, until=lambda model: True)
    rows, summary = judged(rollout, policy, precision="bfloat16", config={"max_missing": 1.0})
    assert [(before is None, after is None) for before, after in beliefs(rows[:3])] == [
        (False, True), (True, False), (False, False),
    ]  # fmt: skip
    assert summary.counts["gains_missing"] == 8


# files --------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What stands for kill -9."""


def test_a_killed_run_is_resumed_to_the_same_bytes(rollout, policy, monkeypatch):
    small = {"batch_rows": 1}
    judged(rollout, policy, "unbroken.parquet", config=small)
    right, calls = BeliefScorer.score, []

    def dying(self, tasks):
        calls.append(len(tasks))
        if len(calls) == 2:
            raise Killed
        return right(self, tasks)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(BeliefScorer, "score", dying)
        judged(rollout, policy, config=small)
    judged(rollout, policy, resume=True, config=small)
    assert rollout.with_name("judge.parquet").read_bytes() == rollout.with_name("unbroken.parquet").read_bytes()
    assert not list(rollout.parent.glob(".*.parts"))


def test_a_complete_output_is_left_and_another_scorer_is_refused(rollout, policy, tmp_path):
    _, made = judged(rollout, policy, scorer="frozen")
    _, again = judged(rollout, policy, scorer="frozen", resume=True)
    assert again.figures == {**made.figures, "already_complete": True}
    assert again.counts["gains_known"] == 12
    other = tiny_policy(tmp_path / "other", seed=5)
    with pytest.raises(UsageError, match="it was scored by the policy"):
        judged(rollout, other, scorer="frozen", resume=True)


def test_a_slim_output_reads_as_the_whole_one(rollout, policy):
    assert judged(rollout, policy)[0] == judged(rollout, policy, "slim.parquet", slim=True)[0]


def test_a_file_without_ids_is_refused(tmp_path, policy):
    from tests.trajectory_files import judged as graded
    from tests.trajectory_files import write

    path = write(tmp_path / "r.parquet", graded({"g": [[-8.0]]}))
    with pytest.raises(InputError, match="lacks the columns segment, prompt_ids, reply_ids"):
        judged(path, policy)


def test_the_wrapper_leaves_a_think_block_to_a_template_that_opens_it(tmp_path):
    opening = CHATML.replace("assistant\n' -}}{%- endif", "assistant\n<think>' -}}{%- endif")
    scorer = BeliefScorer(tiny_policy(tmp_path / "p", chat_template=opening), BeliefOptions())
    assert scorer.template.opens_thinking
    shown = scorer.template.decode(scorer.encode("exam").wrapper_ids)
    assert shown == DEFAULT_WRAPPER.removeprefix("<think>")
