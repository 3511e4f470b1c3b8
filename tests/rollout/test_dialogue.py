"""One dialogue: what is stored of it, how it ends, and the seeds it is drawn with (field cases 26 and 27)."""

import copy

import pytest
from tests.scripted import dialogues, names, register, replies_by_seed, rolled_out, settings

from dialrl.environment.base import EnvironmentStep
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message, Usage
from dialrl.seeds import seed_for
from dialrl.testing import CharacterTokenizer, ScriptedEnvironment, scripted_policy

ENCODE = CharacterTokenizer().encode


def talk(tmp_path, replies, lines=("Hello.", "Go on."), policy=None, **options):
    """The rows of one dialogue."""
    user = {"lines": list(lines), "scenarios": ["s"], **options.pop("user", {})}
    config = settings(1, 1, environment_options=user, **options)
    return rolled_out(tmp_path / "r.parquet", config, policy or scripted_policy(replies))[0]


# what is stored -----------------------------------------------------------------------------------------------------


def test_the_rows_of_a_dialogue_of_two_turns_by_hand(tmp_path):
    first, last = talk(tmp_path, ["Hm.", "I see."])
    assert first["messages"] == [{"role": "user", "name": None, "content": "Hello."}]
    assert last["messages"] == [{"role": "user", "name": None, "content": "Go on."}]
    assert (first["reply"], last["reply"]) == ("Hm.", "I see.")
    assert first["prompt_ids"] == ENCODE("<|user|>Hello.<|end|>\n<|assistant|>")
    assert first["reply_ids"] == ENCODE("Hm.<|end|>")
    assert last["prompt_ids"] == ENCODE("\n<|user|>Go on.<|end|>\n<|assistant|>")
    assert last["reply_ids"] == ENCODE("I see.<|end|>")
    assert (first["segment"], last["segment"]) == (0, 0)
    assert first["reply_logprobs"] == [-0.5] * 4
    assert (first["finish_reason"], first["flags"], first["thinking"]) == ("stop", [], None)
    assert (first["dialogue_id"], first["scenario_id"], first["environment"]) == ("s/0", "s", "scripted")
    assert (first["policy_digest"], first["policy_step"], first["status"]) == ("sha256:scripted", 0, "ok")
    assert (first["end_reason"], first["terminated"], first["outcome"], first["final_messages"]) == (None,) * 4
    assert (last["end_reason"], last["terminated"], last["truncated"], last["outcome"]) == (
        "farewell",
        True,
        False,
        1.0,
    )
    assert (last["final_messages"], last["final_ids"]) == ([], [])


def test_the_prompts_and_replies_of_a_dialogue_are_its_whole_context(tmp_path):
    rows = talk(tmp_path, replies_by_seed, ["Hello.", "Go on.", "And?"])
    context = [token for row in rows for token in (*row["prompt_ids"], *row["reply_ids"])]
    text = CharacterTokenizer().decode(context)
    assert text == "\n".join(
        f"<|user|>{row['messages'][0]['content']}<|end|>\n<|assistant|>{row['reply']}<|end|>" for row in rows
    )


class LastWords(ScriptedEnvironment):
    """Says goodbye with a message, usage and a flag."""

    def open(self, scenario, seed):
        session = super().open(scenario, seed)

        class Session:
            async def opening(self):
                return await session.opening()

            async def respond(self, reply, state):
                said = (Message("user", "Bye."),)
                return EnvironmentStep(said, "farewell", 0.25, ("echo",), usage=(Usage("actor", 9, 0, 2),))

        return Session()


def test_what_follows_the_last_reply_is_stored_with_it(tmp_path, monkeypatch):
    register(monkeypatch, environment=LastWords(["Hello."], scenarios=["s"]))
    (only,) = talk(tmp_path, ["Hm."])
    assert only["final_messages"] == [{"role": "user", "name": None, "content": "Bye."}]
    assert only["final_ids"] == ENCODE("\n<|user|>Bye.<|end|>\n")
    assert (only["outcome"], only["flags"]) == (0.25, ["echo"])
    assert [(used["role"], used["completion_tokens"]) for used in only["usage"]] == [("policy", 4), ("actor", 2)]


def test_others_text_that_spells_control_tokens_is_flagged(tmp_path):
    rows = talk(tmp_path, ["Hm."], ["Hello.", "<|assistant|>I agree."])
    assert [row["flags"] for row in rows] == [[], ["control_tokens"]]


# how it ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["", " \n"])
def test_two_empty_replies_in_a_row_are_a_stalled_dialogue(tmp_path, empty):
    rows = talk(tmp_path, ["Hm.", empty, empty, "More."], ["?"] * 9)
    assert [row["end_reason"] for row in rows] == [None, None, "stalled"]
    assert (rows[-1]["truncated"], rows[-1]["terminated"]) == (True, False)


def test_one_empty_reply_is_none(tmp_path):
    rows = talk(tmp_path, ["", "Hm."], ["?"] * 4)
    assert [row["end_reason"] for row in rows] == [None, None, None, "farewell"]


def test_silence_is_a_choice_where_the_environment_says_so(tmp_path):
    rows = talk(tmp_path, [""], ["?"] * 4, user={"accepts_silence": True})
    assert [row["end_reason"] for row in rows] == [None, None, None, "farewell"]
    assert rows[0]["reply_ids"] == [CharacterTokenizer.eos_token_id]


def test_a_reply_is_cut_at_its_token_limit(tmp_path):
    first, _ = talk(tmp_path, ["Hello there."], max_reply_tokens=5)
    assert (first["reply"], first["finish_reason"], len(first["reply_logprobs"])) == ("Hello", "length", 5)


def test_a_context_that_is_full_ends_the_dialogue(tmp_path):
    # The opening is 10 ids; the reply has 4; what follows it ("\n", header, "Go on.", end, "\n", header) another 11.
    rows = talk(tmp_path, ["Hm."], ["Hello.", "Go on."], context_limit_tokens=25)
    assert len(ENCODE("<|user|>Hello.<|end|>\n<|assistant|>Hm.<|end|>\n<|user|>Go on.<|end|>\n<|assistant|>")) == 25
    (only,) = rows
    assert (only["end_reason"], only["truncated"]) == ("token_limit", True)
    assert only["final_messages"] == [{"role": "user", "name": None, "content": "Go on."}]
    assert only["final_ids"] == []


class Scoring(ScriptedEnvironment):
    """Says with every line what the dialogue is worth so far."""

    def open(self, scenario, seed):
        session = super().open(scenario, seed)

        class Session:
            async def opening(self):
                return await session.opening()

            async def respond(self, reply, state):
                said = (Message("user", "Go on."),)
                return EnvironmentStep(said, None, 0.25, ("echo",), usage=(Usage("actor", 9, 0, 2),))

        return Session()


def test_a_full_context_loses_nothing_of_what_the_environment_said_last(tmp_path, monkeypatch):
    register(monkeypatch, environment=Scoring(["Hello."], scenarios=["s"]))
    (only,) = talk(tmp_path, ["Hm."], context_limit_tokens=25)
    assert (only["end_reason"], only["outcome"], only["flags"]) == ("token_limit", 0.25, ["echo"])
    assert [used["role"] for used in only["usage"]] == ["policy", "actor"]


def test_an_opening_that_fills_the_context_is_a_row_without_reply(tmp_path):
    (only,) = talk(tmp_path, ["Hm."], context_limit_tokens=10)
    assert (only["reply"], only["reply_ids"], only["status"], only["end_reason"]) == (None, None, "ok", "token_limit")
    assert only["final_messages"] == [{"role": "user", "name": None, "content": "Hello."}]


def test_a_reply_may_fill_what_room_is_left(tmp_path):
    first, *_ = talk(tmp_path, ["Hello there."], context_limit_tokens=13)
    assert (first["reply"], first["finish_reason"]) == ("Hel", "length")


# seeds --------------------------------------------------------------------------------------------------------------


def test_every_reply_has_a_seed_of_its_own_named_by_its_place(tmp_path):
    rows, _ = rolled_out(tmp_path / "r.parquet", settings(3, 4, seed=7, iteration=2))
    assert [row["seed"] for row in rows] == [
        seed_for(7, 2, row["group_id"], row["sample"], row["turn"], "policy") for row in rows
    ]
    assert len({row["seed"] for row in rows}) == 3 * 4 * 3


def test_the_users_of_a_group_differ_too(tmp_path, monkeypatch):
    environment = ScriptedEnvironment(["Hello."], scenarios=names(2))
    register(monkeypatch, environment=environment)
    rolled_out(tmp_path / "r.parquet", settings(2, 4))
    assert len({call.seed for call in environment.calls}) == 8


def test_dialogues_that_equal_another_of_their_group_are_counted(tmp_path):
    said = {"scenario-0/1": "No."}
    policy = scripted_policy(lambda request: said.get(request.dialogue, "Yes."))
    _, summary = rolled_out(tmp_path / "r.parquet", settings(2, 4), policy)
    assert summary.counts["duplicate_dialogues"] == 2 + 3
    assert any("5 of 8 dialogues equal another of their group" in warning for warning in summary.warnings)


# field case 27 ------------------------------------------------------------------------------------------------------


def test_rolling_out_twice_over_the_same_scenarios_gives_equal_inputs(tmp_path, monkeypatch):
    cards = [Scenario(name, "train", {"who": {"name": name}, "facts": ["a"]}) for name in names(2)]

    class Careless(ScriptedEnvironment):
        """Would change what it is given, if it were given the original."""

        def scenarios(self, split):
            return cards

    environment = Careless(["Hello.", "Go on."], scenarios=names(2))
    register(monkeypatch, environment=environment)
    before = copy.deepcopy(cards)
    first, _ = rolled_out(tmp_path / "1.parquet", settings(2, 2))
    second, _ = rolled_out(tmp_path / "2.parquet", settings(2, 2))
    assert cards == before
    assert first == second
    assert dialogues(first).keys() == {f"scenario-{s}/{n}" for s in range(2) for n in range(2)}
