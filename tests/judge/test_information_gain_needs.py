"""The judge information-gain over hidden needs: the demo policy listens to dialogues of the demo world and others."""

import numpy as np
import pytest
from tests.trajectory_files import read, write

from dialrl.environment.demo.scenario import scenario
from dialrl.errors import UsageError
from dialrl.judge.config import JudgeConfig
from dialrl.judge.files import judge_files
from dialrl.returns.config import ReturnsConfig
from dialrl.returns.stage import compute_returns
from dialrl.scenario.cards import load_cards
from dialrl.trajectory.reader import TrajectoryFile

LINE = "So under all of it is your {need}."


def said(text):
    return [{"role": "user", "content": text, "name": None}]


def rows_of(name, opening, *turns, environment="demo", sample=0):
    """A dialogue of (reply, the user's answer)."""
    before = [opening, *(answer for _, answer in turns[:-1])]
    made = [
        {
            "group_id": name, "sample": sample, "turn": number, "scenario_id": name, "environment": environment,
            "messages": said(before[number]), "reply": reply, "status": "ok",
        }
        for number, (reply, _) in enumerate(turns)
    ]  # fmt: skip
    made[-1] |= {"end_reason": "turn_limit", "final_messages": said(turns[-1][1])}
    return made


def asked(place):
    """A detail that is told when it is asked for, and one that the policy guesses while the user says nothing."""
    one, two = scenario("test", 0), scenario("test", 1)
    kind = f"It makes sense that you feel {one.feeling}."
    rows = [
        *rows_of(
            one.scenario_id, one.opening, (kind, "It feels safe to talk with you."),
            (f"Can you tell me more about the {one.topic}?", f"The truth is that my {one.detail} is behind it."),
            ("You have been so strong in this.", "It is a relief to say it."),
        ),
        *rows_of(
            two.scenario_id, two.opening, (f"So under all of it is your {two.detail}.", "Hm. It is what it is."),
            ("I see.", "That does not help me."),
        ),
    ]  # fmt: skip
    assert one.detail != two.detail
    return write(place, rows, "rollout")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return asked(tmp_path_factory.mktemp("needs") / "rollout.parquet")


def judged(source, output, *, resume=False, **options):
    config = JudgeConfig(judge="information-gain", judge_options={"targets": "needs", "line": LINE, **options})
    summary = judge_files(source, output, config, policy="demo-policy", resume=resume)
    return read(output), summary


def gains(rows):
    return [row["belief_after"] - row["belief_before"] for row in rows]


def test_the_question_that_made_the_user_tell_earns_the_gain(source, tmp_path):
    rows, summary = judged(source, tmp_path / "judge.parquet")
    first, telling, after, *_ = gains(rows)
    assert telling > 3
    assert abs(after) < 0.01
    assert abs(first) < 2
    assert rows[1]["belief_alias"] == scenario("test", 0).detail
    assert np.exp(rows[1]["belief_after"]) > 0.99
    assert summary.counts["gains_known"] == 5
    assert summary.figures["need_believed_in_the_end"] >= 0.5


def test_a_guess_of_the_policys_own_earns_nothing_though_it_is_right(source, tmp_path):
    rows, _ = judged(source, tmp_path / "judge.parquet")
    guessing = rows[3]
    assert np.exp(guessing["belief_before"]) > 0.9  # the listener heard the policy say it
    assert gains(rows)[3] < 0.1


def test_with_the_needs_permuted_nothing_is_gained(source, tmp_path):
    _, summary = judged(source, tmp_path / "judge.parquet")
    gain, control = summary.figures["gain"]["probability"], summary.figures["gain_shuffled"]["probability"]
    assert gain["mean"] > 0.1
    assert control["mean"] < 0.01


def test_gains_become_rewards_of_the_channel_information_gain(source, tmp_path):
    rows, _ = judged(source, tmp_path / "judge.parquet")
    compute_returns(
        tmp_path / "judge.parquet", tmp_path / "returns.parquet", ReturnsConfig(reward=("information-gain",))
    )
    rewards = [row["reward_information-gain"] for row in read(tmp_path / "returns.parquet")]
    assert rewards == pytest.approx(gains(rows))


def test_dialogues_without_ids_about_support_cards_are_heard_too(tmp_path):
    cards = [card for card in load_cards() if card.language == "en" and card.split == "train"][:2]
    rows = [
        line
        for card in cards
        for line in rows_of(card.id, "My day was long.", ("Tell me.", "I would rather rest."), environment="support")
    ]
    source = write(tmp_path / "rollout.parquet", rows, "rollout")
    judged_rows, summary = judged(source, tmp_path / "judge.parquet", candidates=4, max_gold_tokens=200)
    assert summary.counts["gains_known"] == 2
    assert all(np.isfinite(gains(judged_rows)))
    hopes = {card.hopes for card in load_cards()}
    assert {row["belief_alias"] for row in judged_rows} <= hopes


def test_who_listened_is_in_the_lineage_and_a_resumed_file_is_left_as_it_is(source, tmp_path):
    output = tmp_path / "judge.parquet"
    _, summary = judged(source, output)
    record = TrajectoryFile.open(output).lineage.record("judge")
    assert record.details["targets"] == "needs"
    assert record.details["scorer_digest"] == summary.figures["scorer_digest"]
    assert record.details["gain"] == summary.figures["gain"]
    _, again = judged(source, output, resume=True)
    assert again.figures["already_complete"] is True
    assert again.figures["gain"] == summary.figures["gain"]


def test_a_listener_may_be_named_in_the_options(source, tmp_path):
    config = JudgeConfig(
        judge="information-gain", judge_options={"targets": "needs", "line": LINE, "listener": "demo-policy"}
    )
    summary = judge_files(source, tmp_path / "judge.parquet", config)
    assert summary.counts["gains_known"] == 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"line": "What you need."}, r"expected one \{need\} in it"),
        ({"scorer": "rollout"}, "Input should be 'frozen'|frozen"),
        ({"aliases": "first"}, "unknown key 'aliases'"),
    ],
)
def test_wrong_options_are_named(source, tmp_path, options, told):
    with pytest.raises(UsageError, match=told):
        judged(source, tmp_path / "judge.parquet", **options)
