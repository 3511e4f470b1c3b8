"""Stored files: every fault names file, line and field; lines end at \\n alone; numbers may stand as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialrl.errors import InputError, MissingInputError
from dialrl.evaluate.json_places import line_of
from dialrl.evaluate.stored import Stored, read_document, read_lines

WHAT = "a file of answers"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def document(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_fault_names_file_line_and_field(tmp_path):
    stored = read_document(document(tmp_path, '{\n "a": {\n  "b": [1,\n   "x"]\n }\n}'), WHAT)
    with pytest.raises(
        InputError, match=r"file\.json', line 4, field 'a\.b\[1\]': got the text 'x'; expected a number"
    ):
        stored.number("a", "b", 1)
    with pytest.raises(InputError, match=r"line 2, field 'a\.c': is missing; expected a text"):
        stored.string("a", "c")


def test_numeric_texts_are_numbers_and_nothing_else_is_converted(tmp_path):
    stored = read_document(document(tmp_path, '{"a": "7", "b": 2.5, "c": true, "d": 4}'), WHAT)
    assert (stored.number("a"), stored.number("b"), stored.whole("a")) == (7.0, 2.5, 7)
    for read, key in ((stored.number, "c"), (stored.string, "d"), (stored.whole, "b"), (stored.mapping, "a")):
        with pytest.raises(InputError, match=f"field '{key}'"):
            read(key)


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes('{"a": "one\u2028two\x85three"}\n\n{"a": 4}\r\n'.encode())
    first, second = list(read_lines(path, WHAT))
    assert (first.string("a"), second.number("a")) == ("one\u2028two\x85three", 4.0)
    assert (first.first_line, second.first_line) == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "line 2, field 'a' stands twice"),
        ('{"a": 1,\n oops}', "line 2 is not valid JSON"),
        ('{"a":\n NaN}', "is not valid JSON"),
        (b'{"a":\n "\xff"}', "line 2 is not UTF-8"),
        ("  \n", "is empty; expected a file of answers"),
    ],
)
def test_what_is_no_strict_json_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_document(document(tmp_path, text), WHAT)


def test_a_broken_line_is_refused_with_its_number(tmp_path):
    path = document(tmp_path, b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        list(read_lines(path, WHAT))


def test_absent_files_and_folders_are_refused(tmp_path):
    with pytest.raises(MissingInputError, match="does not exist; expected a file of answers"):
        read_document(tmp_path / "none.json", WHAT)
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path, WHAT))


@given(json_values)
def test_the_line_of_any_value_is_where_it_is_printed(value):
    text = json.dumps(value, indent=1)

    def check(inside, path):
        line = text.split("\n")[line_of(text, path) - 1].strip()
        shown = json.dumps(inside)
        assert shown.rstrip(",") in line if not isinstance(inside, (dict, list)) or not inside else line[-1] in "{["
        members = inside.items() if isinstance(inside, dict) else enumerate(inside if isinstance(inside, list) else ())
        for key, member in members:
            check(member, (*path, key))

    check(value, ())


def test_an_id_may_be_a_number_but_not_empty(tmp_path):
    stored = Stored(tmp_path, '{"a": 3, "b": " "}', {"a": 3, "b": " "})
    assert stored.name("a") == "3"
    with pytest.raises(InputError, match="is empty; expected an id"):
        stored.name("b")
