"""One hierarchy of errors: each with its exit code, each also the standard exception a caller would expect."""

import inspect

import pytest

from dialrl import errors
from dialrl.errors import (
    DialrlError,
    EngineError,
    FailureThresholdError,
    InputError,
    MissingExtraError,
    MissingInputError,
    NumericalError,
    OutputExistsError,
    RunError,
    UsageError,
    missing_extra,
)

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DialrlError)]


@pytest.mark.parametrize(
    ("kind", "standard", "code"),
    [
        (UsageError, ValueError, 2),
        (InputError, ValueError, 2),
        (MissingInputError, FileNotFoundError, 2),
        (OutputExistsError, FileExistsError, 2),
        (MissingExtraError, ImportError, 2),
        (RunError, RuntimeError, 1),
        (FailureThresholdError, RuntimeError, 1),
        (EngineError, RuntimeError, 1),
        (NumericalError, ArithmeticError, 1),
    ],
)
def test_each_error_is_a_standard_exception_with_its_exit_code(kind, standard, code):
    assert issubclass(kind, standard)
    assert kind.exit_code == code


def test_what_the_user_can_mend_exits_with_2_and_everything_else_with_1():
    for kind in ALL:
        assert kind.exit_code == (2 if issubclass(kind, (UsageError, InputError)) else 1), kind


@pytest.mark.parametrize("kind", ALL)
def test_the_message_is_the_sentence_and_nothing_else(kind):
    assert str(kind("'a.parquet' does not exist.")) == "'a.parquet' does not exist."


def test_a_missing_package_is_named_with_its_extra():
    assert "'torch', which is not installed. Install it with: pip install 'dialrl[train]'" in str(
        missing_extra("train", "torch")
    )
