"""One dialogue followed by its grader, by hand."""

from dialrl.judge.base import Grade, TurnVerdict
from dialrl.judge.grading import DialogueGrader
from dialrl.state.rubric import load_rubric
from dialrl.state.rules import StopRules


def test_success_holds_from_min_turns_on_even_where_it_does_not_stop():
    rubric = load_rubric()
    verdict = TurnVerdict(tuple(Grade(name, 0) for name in rubric.indicator_names), "ok")
    grader = DialogueGrader(rubric, (0.0, 0.0, 0.0), StopRules(min_turns=2, success=False))
    held = []
    for turn in range(2):
        grader.add(verdict, turn=turn)
        held.append(grader.success_holds)
    assert held == [False, True]
    assert grader.stop_turn is None
