"""What somebody changed in a JSON file is an input error that names the file, the key and what to do."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from dialrl.errors import InputError, MissingInputError
from dialrl.json_file import Checked, as_record, read_object


@dataclass(frozen=True)
class Step(Checked):
    number: int
    name: str = ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", r"a.json' is not valid JSON \(.*\)\. Save it\.$"),
        (b"", r"a.json' is not valid JSON"),
        (b"\xff\xfe\x00", r"a.json' is not valid JSON"),
        (b"[" * 100_000, r"a.json' is not valid JSON"),
        (b"[]", r"a.json' holds a list; expected an object\. Save it\."),
        (b"null", r"a.json' holds null; expected an object"),
        (b"3", r"a.json' holds a number; expected an object"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_object(tmp_path / "a.json", remedy="Save it.")


def test_a_file_that_is_not_there_is_a_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"a.json' does not exist\. Save it\."):
        read_object(tmp_path / "a.json", remedy="Save it.")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, r"^it: 'number' is missing\. Save it\.$"),
        ({"number": 1, "nmae": "x"}, r"^it: 'nmae' is not known\. Save it\.$"),
        ({"number": "1"}, r"^it: 'number' holds '1': Input should be a valid integer\. Save it\.$"),
        ({"number": 1, "name": None}, r"^it: 'name' holds None: Input should be a valid string"),
    ],
)
def test_a_record_is_refused_by_the_key_that_is_wrong(content: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        as_record(Step, content, where="it", remedy="Save it.")
    assert as_record(Step, {"number": 1}, where="it", remedy="") == Step(1)
