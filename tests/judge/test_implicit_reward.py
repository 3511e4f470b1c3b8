"""The judge implicit-reward: log-ratios of a turn's own tokens, and what a turn's reward is made of them."""

import math

import numpy as np
import pytest
import torch
from tests.trajectory_files import read, row, write
from tests.update.worlds import VOCABULARY, save_policy, tiny_model, turn_row, write_advantages

from dialrl.config import validated
from dialrl.errors import InputError, UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.judge.implicit_shares import shares_of_outcome, summed_scores
from dialrl.judge.reference_scorer import ReferenceScorer
from dialrl.model.digest import policy_digest
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.trajectory.outcome_labels import outcome_label
from dialrl.trajectory.reader import TrajectoryFile

# the arithmetic -----------------------------------------------------------------------------------------------------


def test_the_outcome_is_shared_out_by_a_softmax_of_mean_token_scores():
    # m L / tau: beta 1, L 2, tau 1; log-ratios (log 3, 0) over 2 tokens each -> exponents (log 3, 0).
    shares = shares_of_outcome([math.log(3), 0.0], [2, 2], 1.0, beta=1.0, temperature=1.0, mean_tokens=2.0)
    assert shares == pytest.approx([0.75, 0.25])
    # A turn of 4 tokens with the same sum has half the mean: exponents (log 3, log 3 / 2).
    uneven = shares_of_outcome([math.log(3)] * 2, [2, 4], 1.0, beta=1.0, temperature=1.0, mean_tokens=2.0)
    assert uneven == pytest.approx([3 / (3 + 3**0.5), 3**0.5 / (3 + 3**0.5)])


def test_shares_sum_to_the_outcome_however_large_the_scores():
    shares = shares_of_outcome([5000.0, -5000.0, 0.0], [1, 1, 0], 0.4, beta=1.0, temperature=0.4, mean_tokens=3.0)
    assert shares == pytest.approx([0.4, 0.0, 0.0])
    equal = shares_of_outcome([0.0] * 4, [3, 1, 0, 2], 0.4, beta=0.01, temperature=0.4, mean_tokens=1.5)
    assert equal == pytest.approx([0.1] * 4)


def test_without_normalising_a_turn_gets_beta_times_its_log_ratio():
    assert summed_scores([2.0, -1.0], 0.5).tolist() == [1.0, -0.5]


@pytest.mark.parametrize(("outcome", "label"), [(4.0, 0.4), (12.0, 1.0), (-3.0, 0.0), (0.0, 0.0)])
def test_an_outcome_has_its_place_in_a_range(outcome, label):
    assert outcome_label(outcome, (0.0, 10.0), where="x") == pytest.approx(label)


@pytest.mark.parametrize(("outcome", "said"), [(1.5, "outcome 1.5; a label is a number"), (math.nan, "finite number")])
def test_an_outcome_that_is_no_label_is_refused(outcome, said):
    with pytest.raises(InputError, match=f"dialogue 'g/0' has {said}|{said}"):
        outcome_label(outcome, None, where="dialogue 'g/0'")


# the stage ----------------------------------------------------------------------------------------------------------


def spoken(prompt, reply, sample=0, turn=0, **changes):
    made = turn_row("g", sample, turn, prompt, reply, **changes)
    return {**made, "reply": "said", "scenario_id": "s", "environment": "demo"}


def dialogues(**changes):
    """Two dialogues of two turns with outcomes 1 and 0; 5 and 3 sampled tokens."""
    return [
        spoken([3, 4], [5, 1], **changes),
        spoken([6, 7, 2], [8, 9, 1], turn=1, outcome=1.0, **changes),
        spoken([3, 4], [1], 1, **changes),
        spoken([6], [7, 1], 1, turn=1, outcome=0.0, **changes),
    ]


@pytest.fixture
def models(tmp_path):
    return save_policy(tmp_path / "phi", seed=1), save_policy(tmp_path / "reference")


def scored(source, models, name="implicit.parquet", *, overwrite=False, resume=False, batch_rows=2048, **options):
    output = source.with_name(name)
    config = JudgeConfig(
        judge="implicit-reward", reward_model=str(models[0]), reference=str(models[1]), implicit_options=options,
        batch_rows=batch_rows,
    )  # fmt: skip
    return output, judge_files(source, output, config, overwrite=overwrite, resume=resume)


def plain_log_ratios(rows):
    """log phi - log ref of each turn's own tokens, in float64, token by token, by (sample, turn)."""
    phi, reference = tiny_model(seed=1, dtype=torch.float64), tiny_model(dtype=torch.float64)
    found, context = {}, {}
    for one in rows:
        ids = context.setdefault(one["sample"], [])
        ids += one["prompt_ids"]
        total = 0.0
        for token in one["reply_ids"]:
            with torch.no_grad():
                tables = [m(torch.tensor([ids])).logits[0, -1].log_softmax(-1) for m in (phi, reference)]
            total += float(tables[0][token] - tables[1][token])
            ids.append(token)
        found[one["sample"], one["turn"]] = total
    return found


def test_a_turn_has_the_log_ratio_of_its_own_tokens_in_their_context(tmp_path, models):
    # Whatever the sampler's temperature was: nothing is drawn from the reward model.
    source = write_advantages(tmp_path / "a.parquet", dialogues(), sampling={"temperature": 0.7, "top_p": 0.9})
    output, summary = scored(source, models, normalise="none", beta=0.5)
    want = plain_log_ratios(dialogues())
    for one in read(output):
        ratio = want[one["sample"], one["turn"]]
        assert one["implicit_log_ratio"] == pytest.approx(ratio, abs=1e-4)
        assert one["implicit_reward"] == pytest.approx(0.5 * ratio, abs=1e-4)
    assert summary.counts["turns_scored"] == 4
    assert summary.figures["mean_log_ratio_per_turn"] == pytest.approx(np.mean(list(want.values())), abs=1e-4)


def test_normalised_the_turns_share_out_their_dialogues_outcome(tmp_path, models):
    source = write_advantages(tmp_path / "a.parquet", dialogues())
    output, _ = scored(source, models, beta=0.3, temperature=0.5)
    want = plain_log_ratios(dialogues())
    weight = [math.exp(0.3 * want[0, turn] / length * 2.0 / 0.5) for turn, length in ((0, 2), (1, 3))]  # L = 8 / 4
    rewards = [one["implicit_reward"] for one in read(output)]
    assert rewards[:2] == pytest.approx([w / sum(weight) for w in weight], abs=1e-4)
    assert rewards[2:] == [0.0, 0.0]
    record = TrajectoryFile.open(output).lineage.record("judge")
    assert record.details == {
        "reward_model_digest": policy_digest(models[0]), "reference_digest": policy_digest(models[1]),
        "mean_reply_tokens": 2.0,
    }  # fmt: skip


def test_a_reward_model_that_is_still_the_reference_shares_out_evenly(tmp_path, models):
    source = write_advantages(tmp_path / "a.parquet", dialogues())
    output, _ = scored(source, (models[1], models[1]))
    assert [one["implicit_reward"] for one in read(output)] == pytest.approx([0.5, 0.5, 0.0, 0.0])


def test_turns_after_the_stop_failed_dialogues_and_unknown_outcomes_have_no_reward(tmp_path, models):
    first, second, third, fourth = dialogues()
    rows = [
        {**first, "stop_turn": 0}, {**second, "stop_turn": 0}, third, {**fourth, "outcome": None},
        spoken([3], [4], 2, status="error"),
    ]  # fmt: skip
    output, summary = scored(write_advantages(tmp_path / "a.parquet", rows), models)
    assert [one["implicit_reward"] for one in read(output)] == [1.0, None, None, None, None]
    assert [one["implicit_log_ratio"] is not None for one in read(output)] == [True, False, True, True, False]
    assert summary.counts == {
        "dialogues": 3, "dialogues_without_outcome": 2, "outcomes_clipped": 0, "turns_left_out": 2,
        "turns_rewarded": 1, "turns_scored": 3,
    }  # fmt: skip


def test_outcomes_that_are_no_labels_are_refused_unless_a_range_says_what_they_are(tmp_path, models):
    rows = dialogues()
    rows[1]["outcome"], rows[3]["outcome"] = 6.0, 30.0
    source = write_advantages(tmp_path / "a.parquet", rows)
    with pytest.raises(InputError, match="dialogue 'g/0', turn 1 has outcome 6"):
        scored(source, models)
    output, summary = scored(source, models, outcome_range=(2, 10))
    rewards = [one["implicit_reward"] for one in read(output)]
    assert [sum(rewards[:2]), sum(rewards[2:])] == pytest.approx([0.5, 1.0])
    assert summary.counts["outcomes_clipped"] == 1
    with pytest.raises(UsageError, match="two finite numbers, the lower one first"):
        validated(JudgeConfig, {"implicit_options": {"outcome_range": [3, 1]}}, where="x")


def test_what_is_missing_or_does_not_fit_is_refused(tmp_path, models):
    source = write_advantages(tmp_path / "a.parquet", dialogues())
    with pytest.raises(UsageError, match="--reward-model DIRECTORY"):
        judge_files(source, tmp_path / "x.parquet", JudgeConfig(judge="implicit-reward", reference=str(models[1])))
    beyond = write_advantages(tmp_path / "b.parquet", [spoken([3], [VOCABULARY], outcome=1.0)])
    with pytest.raises(InputError, match=r"dialogue 'g/0', turn 0.*vocabulary of 12"):
        scored(beyond, models)


def test_a_killed_run_goes_on_and_another_reward_model_is_not_taken_for_it(tmp_path, models, monkeypatch):
    more = [{**one, "group_id": "h"} for one in dialogues()]
    source = write_advantages(tmp_path / "a.parquet", [*dialogues(), *more])
    whole, _ = scored(source, models, "whole.parquet", batch_rows=1)
    right, calls = ReferenceScorer.score, []

    def dying(self, sequences, temperature):
        calls.append(len(sequences))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return right(self, sequences, temperature)

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceScorer, "score", dying)
        with pytest.raises(KeyboardInterrupt):
            scored(source, models, batch_rows=1)
        output, _ = scored(source, models, batch_rows=1, resume=True)
    assert calls == [2] * 5
    assert output.read_bytes() == whole.read_bytes()
    _, summary = scored(source, models, batch_rows=1, resume=True)
    assert summary.figures["already_complete"]
    with pytest.raises(UsageError, match="made with the reward model sha256:"):
        scored(source, (models[1], models[1]), batch_rows=1, resume=True)


# through returns ----------------------------------------------------------------------------------------------------


def test_the_channel_implicit_is_the_column(tmp_path):
    rows = [row("g", 0, 0, implicit_reward=0.25), row("g", 0, 1, implicit_reward=0.75), row("g", 1, 0)]
    source = write(tmp_path / "implicit.parquet", [{**one, "judge_status": "ok"} for one in rows], "judge")
    compute_returns(source, tmp_path / "r.parquet", ReturnsConfig(reward=("implicit",), gamma=1.0))
    returned = read(tmp_path / "r.parquet")
    assert [one["reward"] for one in returned] == [0.25, 0.75, None]
    assert returned[0]["return"] == 1.0
    assert returned[2]["reward_implicit_status"] == "missing"
