"""JSON values become column values without silent conversions, or a fault that names the place."""

import pytest

from dialrl.trajectory.importers.json_values import MisfitError, convert
from dialrl.trajectory.schema import COLUMNS


def column(name, value):
    return convert(value, COLUMNS[name].type, name)


def test_numbers_may_stand_as_text_where_the_column_is_a_number():
    assert column("sample", "4") == 4
    assert column("sample", 4) == 4
    assert column("sample", 4.0) == 4
    assert column("outcome", "-0.5e1") == -5.0
    assert column("outcome", 1) == 1.0
    assert column("deficit", ["-2", -3]) == [-2.0, -3.0]


def test_null_stays_null():
    assert column("outcome", None) is None
    assert column("increment", None) is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("sample", True, "expected a whole number"),
        ("sample", 1.5, "expected a whole number"),
        ("sample", "four", "expected a whole number"),
        ("sample", "1_000", "expected a whole number"),
        ("sample", 2**31, "does not fit int32"),
        ("seed", 2**63, "does not fit int64"),
        ("seed", "9" * 40, "does not fit int64"),
        ("outcome", float("inf"), "finite number"),
        ("outcome", 10**400, "finite number"),
        ("outcome", "nan", "expected a number"),
        ("outcome", False, "expected a number"),
        ("terminated", 1, "expected true or false"),
        ("reply", 4, "expected text in quotes"),
        ("deficit", 3.0, "expected a list"),
        ("director", "wait", "expected an object"),
    ],
)
def test_what_does_not_fit_is_refused(name, value, problem):
    with pytest.raises(MisfitError, match=problem):
        column(name, value)


def test_a_fault_inside_a_structure_is_named_by_its_path():
    with pytest.raises(MisfitError) as caught:
        column("messages", [{"role": "user", "content": "a"}, {"role": "user", "content": 7}])
    assert caught.value.path == "messages[1].content"


def test_a_lone_surrogate_is_no_text_and_a_pair_is():
    assert column("reply", "\U0001f600") == "\U0001f600"
    with pytest.raises(MisfitError, match=r"messages\[0\].content: holds a lone surrogate at character 2"):
        column("messages", [{"role": "user", "content": "ab\ud83d"}])


def test_a_list_is_known_as_a_whole_or_null():
    with pytest.raises(MisfitError, match=r"increment\[1\]: got null"):
        column("increment", [1, None, 2])
    assert column("flags", []) == []
    with pytest.raises(MisfitError, match=r"flags\[0\].*expected text"):
        column("flags", [[]])


def test_unknown_keys_of_a_structure_are_refused_with_the_nearest():
    with pytest.raises(MisfitError, match=r"unknown key 'contents'. Did you mean 'content'"):
        column("messages", [{"role": "user", "contents": "a"}])
    with pytest.raises(MisfitError, match=r"unknown key '\\ud800'"):
        column("director", {"\ud800": 1})


def test_a_message_needs_role_and_content():
    with pytest.raises(MisfitError, match=r"messages\[0\]: a message needs 'role'"):
        column("messages", [{}])
    assert column("messages", [{"role": "tool", "content": ""}]) == [{"role": "tool", "name": None, "content": ""}]


def test_grades_keep_their_levels_and_texts():
    grades = [{"indicator": "C.Prog", "level": "2", "evidence": "You wrote that."}]
    assert column("grades", grades) == [
        {"indicator": "C.Prog", "level": 2, "evidence": "You wrote that.", "reasoning": None}
    ]
