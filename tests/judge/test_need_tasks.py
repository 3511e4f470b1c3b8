"""Where a listener is asked for a need, and what its answers are worth, by hand."""

import numpy as np
import pytest
from tests.toys import CHATML, THINKING, fast_tokenizer

from dialrl.judge.need_sets import NeedSet
from dialrl.judge.need_tasks import NeedTasks, hear, log_softmax, need_tasks
from dialrl.model.belief.gold import GoldAlias
from dialrl.model.template import ChatTemplate

NEEDS = NeedSet(("to be seen and not to be helped", "rest", "an apology"), 0, 2)
GOLDS = [GoldAlias(text, (7,), (8, 9)) for text in NEEDS.candidates]


def said(role, *texts):
    return [{"role": role, "content": text, "name": None} for text in texts]


def turn(number, messages, reply, **more):
    return {"group_id": "g", "sample": 0, "turn": number, "messages": messages, "reply": reply, "status": "ok", **more}


def dialogue(last="Yes."):
    return [
        turn(0, [*said("system", "Be kind."), *said("user", "Hi.")], "Hello."),
        turn(1, said("user", "I am tired."), "Why?", final_messages=said("user", last)),
    ]


def test_the_listener_is_asked_after_each_reply_and_after_the_answer_to_it():
    heard = hear(dialogue())
    assert [message.content for message in heard.messages] == ["Hi.", "Hello.", "I am tired.", "Why?", "Yes."]
    assert (heard.replied, heard.answered, heard.places()) == ([2, 4], [3, 5], [2, 3, 4, 5])
    assert heard.answers == ["I am tired.", "Yes."]


def test_a_reply_that_nobody_answered_and_one_that_broke_are_not_asked_about():
    rows = [turn(0, said("user", "Hi."), "Hello."), turn(1, said("user", "So."), None, status="error")]
    heard = hear(rows)
    assert (heard.replied, heard.answered, heard.places()) == ([2, None], [3, None], [2, 3])
    assert hear([turn(0, said("user", "Hi."), "Hello.", final_messages=None)]).places() == []


def test_log_softmax_by_hand():
    assert log_softmax(np.array([0.0, 0.0])) == pytest.approx([-0.6931, -0.6931], abs=1e-4)
    assert log_softmax(np.array([-1.0, -2.0])) == pytest.approx([-0.3133, -1.3133], abs=1e-4)


def columns(beliefs, rows=None, tau=1.0):
    made = NeedTasks(rows or dialogue(), hear(rows or dialogue()), NEEDS, [], [(2, 3, 4, 5)])
    return made.columns([np.array(beliefs)], tau=tau, quote_characters=20)


def test_the_gain_is_the_answers_and_never_the_policys_own_assertion():
    """Mean log-probs of three needs; between place 3 and 4 only the policy spoke."""
    first, second = columns([[-1, -1, -1], [0, -1, -1], [5, -1, -1], [5, -1, -1]])
    assert first["belief_before"] == pytest.approx(-np.log(3))
    assert first["belief_after"] == pytest.approx(-np.log(1 + 2 / np.e))
    assert second["belief_after"] == second["belief_before"]  # what the policy said itself is in neither
    assert (first["belief_alias"], second["belief_alias"]) == ("to be seen and not to be helped",) * 2


def test_what_all_needs_gain_alike_is_no_gain():
    first, second = columns([[-1, -2, -3], [-4, -5, -6], [-1, -2, -3], [0, -1, -2]])
    assert first["belief_after"] == pytest.approx(first["belief_before"], abs=1e-12)
    assert second["belief_after"] == pytest.approx(second["belief_before"], abs=1e-12)


def test_the_control_is_the_same_for_another_dialogues_need():
    first, _ = columns([[-1, -1, -1], [0, -1, -1], [5, -1, -1], [5, -1, -1]])
    assert first["belief_before_shuffled"] == pytest.approx(-np.log(3))
    assert first["belief_after_shuffled"] == pytest.approx(-1 - np.log(1 + 2 / np.e))  # it loses what the need wins


def test_tau_divides_the_log_probs():
    first, _ = columns([[-2, -2, -2], [0, -2, -2], [0, 0, 0], [0, 0, 0]], tau=2.0)
    assert first["belief_after"] == pytest.approx(-np.log(1 + 2 / np.e))


def test_an_answer_that_quotes_the_need_earns_nothing():
    rows = dialogue(last="I want to be seen and not to be helped.")
    _, second = columns([[-1, -1, -1], [-1, -1, -1], [-1, -1, -1], [9, -1, -1]], rows)
    assert second["belief_after"] == second["belief_before"] == pytest.approx(-np.log(3))


def test_a_belief_that_is_not_finite_is_missing():
    first, second = columns([[-1, np.nan, -1], [0, -1, -1], [0, -1, -1], [0, -1, -1]])
    assert (first["belief_before"], first["belief_after"]) == (None, pytest.approx(-np.log(1 + 2 / np.e)))
    assert second["belief_before"] is not None


# rendering ----------------------------------------------------------------------------------------------------------


def tasks(template, limit=None):
    return need_tasks(dialogue(), NEEDS, GOLDS, ChatTemplate(fast_tokenizer(template)), limit_tokens=limit)


def test_one_task_whose_cuts_end_where_the_messages_end():
    template = ChatTemplate(fast_tokenizer(CHATML))
    made = tasks(CHATML)
    (task,), (places,) = made.tasks, made.places
    heard = hear(dialogue()).messages
    assert places == (2, 3, 4, 5)
    for place, cut in zip(places, task.cuts, strict=True):
        rendered = template.render(heard[:place], generation_prompt=False)
        assert template.decode(task.trunk_ids[:cut].tolist()) == rendered


def test_a_template_that_rewrites_what_it_rendered_gets_a_task_a_place():
    rows = dialogue()
    rows[0]["reply"] = "<think>hm</think>Hello."
    made = need_tasks(rows, NEEDS, GOLDS, ChatTemplate(fast_tokenizer(THINKING)), limit_tokens=None)
    assert made.places == [(2,), (3,), (4,), (5,)]
    assert [task.cuts for task in made.tasks] == [(len(task.trunk_ids),) for task in made.tasks]


def test_places_beyond_the_listeners_context_are_left_out():
    whole = tasks(CHATML).tasks[0].cuts
    made = tasks(CHATML, limit=whole[1] + 3)  # wrapper 1 and need 2
    assert (made.places, made.tasks[0].cuts) == ([(2, 3)], whole[:2])
    first, second = made.columns([np.zeros((2, 3))], tau=1.0, quote_characters=20)
    assert first["belief_after"] is not None
    assert second["belief_after"] is None
