"""The judge reference-kl: kl of each turn from its own sampled tokens, by hand and through returns and advantage."""

import math

import numpy as np
import pytest
import torch
from tests.policies import random_policy
from tests.trajectory_files import read, row, write
from tests.update.worlds import VOCABULARY, save_policy, tiny_model, turn_row, write_advantages

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.stage import compute_advantages
from dialrl.errors import InputError, NumericalError, UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.judge.reference_scorer import ReferenceScorer, sequence_logprobs
from dialrl.judge.reference_tasks import dialogue_sequences
from dialrl.model.digest import policy_digest
from dialrl.model.layout import prepare_layout
from dialrl.model.packing import TokenSequence
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.trajectory.reader import TrajectoryFile

TWO_TURNS = [[3, 4], [5, 1], [6, 7, 2], [8, 9, 1]]  # prompt, reply, prompt, reply


def spoken(prompt, reply, turn=0, **changes):
    """A turn of dialogue g/0 as a rollout writes it."""
    made = turn_row("g", 0, turn, prompt, reply, **changes)
    return {**made, "reply": "said", "scenario_id": "s", "environment": "demo"}


def two_turns(**changes):
    return [spoken(*TWO_TURNS[:2], **changes), spoken(*TWO_TURNS[2:], turn=1, **changes)]


# by hand ------------------------------------------------------------------------------------------------------------


def test_the_tokens_of_the_user_have_no_kl(tmp_path):
    # Field case 5: mask 1 0 0 1, kl .1 at both sampled tokens whatever it is between, beta 1, reward 1 at the end.
    rows = [spoken([4], [5], reply_logprobs=[-1.0]), spoken([6, 7], [8], turn=1, reply_logprobs=[-2.0])]
    (sequence,) = dialogue_sequences(rows, vocabulary=VOCABULARY)
    assert sequence.tokens.ids_T.tolist() == [4, 5, 6, 7, 8]
    assert sequence.tokens.trained_places.tolist() == [1, 4]
    kl = sequence.kl(np.array([-1.1, -2.1]))
    assert kl == pytest.approx({0: 0.1, 1: 0.1})
    table = [
        {**row("g", 0, turn), "kl": value, "outcome": 1.0 if turn else None, "end_reason": "success" if turn else None}
        for turn, value in kl.items()
    ]
    write(tmp_path / "kl.parquet", table, "judge")
    config = ReturnsConfig(reward=["kl", "outcome"], kl_beta=1.0, gamma=1.0)
    compute_returns(tmp_path / "kl.parquet", tmp_path / "r.parquet", config)
    returned = read(tmp_path / "r.parquet")
    assert [one["reward"] for one in returned] == pytest.approx([-0.1, 0.9])
    assert returned[0]["return"] == pytest.approx(0.8)


def test_a_reference_that_knows_nothing_gives_log_one_over_the_vocabulary():
    # A head of zeros: every one of the 12 tokens has log-prob -log 12 = -2.4849, at any temperature.
    model = tiny_model("llama", dtype=torch.float64)
    torch.nn.init.zeros_(model.get_output_embeddings().weight)
    (sequence,) = dialogue_sequences(two_turns(), vocabulary=VOCABULARY)
    (logprobs,) = sequence_logprobs(model, prepare_layout(model), [sequence.tokens], 0.7, token_budget=99)
    assert logprobs == pytest.approx([-math.log(12)] * 5, abs=1e-12)
    assert sequence.kl(logprobs) == pytest.approx({0: -2 + 2 * math.log(12), 1: -3 + 3 * math.log(12)}, abs=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("token_budget", [1, 99])
def test_log_probs_are_those_of_the_whole_context_one_by_one(temperature, token_budget):
    model = tiny_model(dtype=torch.float64)
    sequences = [
        TokenSequence(np.array([3, 4, 5, 1, 6, 7, 2, 8, 9, 1]), np.array([2, 3, 7, 8, 9])),
        TokenSequence(np.array([2, 2]), np.array([], dtype=np.int64)),
        TokenSequence(np.array([9, 8, 7]), np.array([2])),
    ]
    found = sequence_logprobs(model, prepare_layout(model), sequences, temperature, token_budget=token_budget)
    for sequence, logprobs in zip(sequences, found, strict=True):
        assert len(logprobs) == len(sequence.trained_places)
        for place, value in zip(sequence.trained_places, logprobs, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([sequence.ids_T[:place].tolist()])).logits[0, -1] / temperature
            wanted = (logits[sequence.ids_T[place]] - torch.logsumexp(logits, -1)).item()
            assert value == pytest.approx(wanted, abs=1e-10)


def test_a_segment_is_a_sequence_of_its_own():
    rows = [spoken([3, 4], [5, 1]), spoken([6, 7, 2], [8], turn=1, segment=1), spoken([2], [9, 1], turn=2, segment=1)]
    first, second = dialogue_sequences(rows, vocabulary=VOCABULARY)
    assert (first.tokens.ids_T.tolist(), first.rows) == ([3, 4, 5, 1], (0,))
    assert (second.tokens.ids_T.tolist(), second.rows) == ([6, 7, 2, 8, 2, 9, 1], (1, 2))
    assert second.tokens.trained_places.tolist() == [3, 5, 6]


def test_an_empty_reply_costs_nothing_and_a_failed_dialogue_is_not_known():
    (sequence,) = dialogue_sequences([spoken([3], []), spoken([4], [5], turn=1)], vocabulary=VOCABULARY)
    assert sequence.kl(np.array([-1.5])) == {0: 0.0, 1: 0.5}
    assert dialogue_sequences(two_turns(status="error"), vocabulary=VOCABULARY) == []


# the stage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reference(tmp_path):
    return save_policy(tmp_path / "reference")


def compared(source, reference, name="kl.parquet", *, overwrite=False, resume=False, slim=False, **options):
    output = source.with_name(name)
    config = JudgeConfig(judge="reference-kl", reference=None if reference is None else str(reference), **options)
    return output, judge_files(source, output, config, overwrite=overwrite, resume=resume, slim=slim)


def test_the_column_holds_the_sum_over_each_turns_tokens_and_the_lineage_the_references_digest(tmp_path, reference):
    source = write_advantages(tmp_path / "a.parquet", [*two_turns(), *others()])
    output, summary = compared(source, reference)
    (sequence,) = dialogue_sequences(two_turns(), vocabulary=VOCABULARY)
    (logprobs,) = ReferenceScorer(reference, JudgeConfig().reference_options).score([sequence.tokens], 1.0)
    kls = [one["kl"] for one in read(output)]
    assert kls[:2] == pytest.approx([-2 - logprobs[:2].sum(), -3 - logprobs[2:].sum()])
    record = TrajectoryFile.open(output).lineage.record("judge")
    assert record.details == {"reference_digest": policy_digest(reference), "temperature": 1.0}
    assert summary.counts == {"turns_compared": 4, "turns_without_reply": 0}
    assert summary.figures["mean_kl_per_turn"] == pytest.approx(sum(kls) / 4)


def others():
    return [{**one, "group_id": "h"} for one in two_turns()]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([spoken([3], [5], reply_logprobs=None)], "text only"),
        ([spoken([3], [5], reply_logprobs=[-1.0, -1.0])], "1 reply_ids but 2 reply_logprobs"),
        ([spoken([3], [5], reply_logprobs=[math.nan])], "token 0 was sampled with log-prob nan"),
        ([spoken([], [5])], "no prompt_ids before it"),
        ([spoken([3], [VOCABULARY])], "vocabulary of 12"),
        ([spoken([3] * 300, [5])], "301 tokens; the model takes 256"),
    ],
)
def test_what_cannot_be_compared_is_named(tmp_path, reference, rows, said):
    source = write_advantages(tmp_path / "a.parquet", rows)
    with pytest.raises((InputError, NumericalError), match=f"dialogue 'g/0', turn 0.*{said}"):
        compared(source, reference)
    assert not (tmp_path / "kl.parquet").exists()


def test_a_truncated_distribution_and_a_missing_reference_are_refused(tmp_path, reference):
    cut = write_advantages(tmp_path / "cut.parquet", two_turns(), sampling={"temperature": 1.0, "top_p": 0.9})
    with pytest.raises(InputError, match=r"top_p 0\.9"):
        compared(cut, reference)
    with pytest.raises(UsageError, match="--reference DIRECTORY"):
        compared(cut, None)


def test_a_killed_run_goes_on_after_the_blocks_that_were_done(tmp_path, reference, monkeypatch):
    source = write_advantages(tmp_path / "a.parquet", [*two_turns(), *others()])
    whole, _ = compared(source, reference, "whole.parquet", batch_rows=1)
    right, calls = ReferenceScorer.score, []

    def dying(self, sequences, temperature):
        calls.append(len(sequences))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(self, sequences, temperature)

    monkeypatch.setattr(ReferenceScorer, "score", dying)
    with pytest.raises(KeyboardInterrupt):
        compared(source, reference, batch_rows=1)
    output, _ = compared(source, reference, batch_rows=1, resume=True)
    assert calls == [1, 1, 1]
    assert output.read_bytes() == whole.read_bytes()


def test_another_reference_is_not_taken_for_the_one_before(tmp_path, reference):
    source = write_advantages(tmp_path / "a.parquet", two_turns())
    compared(source, reference)
    _, summary = compared(source, reference, resume=True)
    assert summary.figures["already_complete"]
    tiny_model(seed=1).save_pretrained(reference)
    with pytest.raises(UsageError, match="made with the reference sha256:"):
        compared(source, reference, resume=True)


# end to end ---------------------------------------------------------------------------------------------------------


def rolled_out(folder, temperature=1.0):
    policy = random_policy(folder / "policy")
    config = RolloutConfig(
        groups=2, samples=2, max_turns=3, max_reply_tokens=8, grading="live", temperature=temperature
    )
    roll_out(open_policy(policy), folder / "rollout.parquet", config)
    return policy, folder / "rollout.parquet"


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_policy_is_no_distance_from_itself(tmp_path, temperature):
    policy, rollout = rolled_out(tmp_path, temperature)
    output, _ = compared(rollout, policy)
    tokens = sum(len(one["reply_ids"]) for one in read(rollout))
    assert sum(abs(one["kl"]) for one in read(output)) / tokens < 1e-3


def test_grades_stay_and_the_penalty_is_beta_times_the_column(tmp_path):
    _, rollout = rolled_out(tmp_path)
    graded = tmp_path / "judge.parquet"
    judge_files(rollout, graded, JudgeConfig(), slim=True)
    output, _ = compared(graded, random_policy(tmp_path / "other", seed=1), slim=True)
    kls = [one["kl"] for one in read(output)]
    assert any(abs(kl) > 1e-3 for kl in kls)
    assert [one["grades"] for one in read(output)] == [one["grades"] for one in read(graded)]
    config = ReturnsConfig(reward=["incremental-distance", "kl"], kl_beta=0.5)
    compute_returns(output, tmp_path / "returns.parquet", config, slim=True)
    compute_advantages(tmp_path / "returns.parquet", tmp_path / "a.parquet", AdvantageConfig(preset="mica"))
    for one, kl in zip(read(tmp_path / "a.parquet"), kls, strict=True):
        assert one["reward_kl"] == pytest.approx(-0.5 * kl)
        assert one["reward"] == pytest.approx(one["reward_incremental-distance"] - 0.5 * kl)
        assert one["advantage"] is not None


def test_judging_again_after_it_is_still_told_which_judge_graded(tmp_path):
    policy, rollout = rolled_out(tmp_path)
    graded = tmp_path / "judge.parquet"
    judge_files(rollout, graded, JudgeConfig(judge_options={"noise": 0.5}, regrade=True))
    output, _ = compared(graded, policy)
    again = tmp_path / "again.parquet"
    judge_files(output, again, JudgeConfig(judge="demo", judge_options={"noise": 0.5}))
    assert [one["grades"] for one in read(again)] == [one["grades"] for one in read(graded)]
    assert "kl" in read(again)[0]
    with pytest.raises(UsageError, match="by an earlier judge command, by another judge"):
        judge_files(output, again, JudgeConfig(judge_options={"noise": 0.1}), overwrite=True)
