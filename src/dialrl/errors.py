"""Every error a user can meet, in one hierarchy.

The words: a *usage or input error* (exit code 2) is something the user can mend: a file, an option, a setting.
A *run error* (exit code 1) is something that went wrong while working. A broken dialogue or judgement is neither: it is
data, a row with a status, and is never raised past the place that records it.

Every message says what was given, what was expected, where, and what to do. Each class is also the standard exception
that a caller of the Python functions would expect. Not here: exit codes' printing (``dialrl.cli``).
"""


class DialrlError(Exception):
    """Base of all errors of this package; ``exit_code`` is what a command exits with."""

    exit_code = 1


class UsageError(DialrlError, ValueError):
    """An option, setting or combination of them that cannot be used."""

    exit_code = 2


class InputError(DialrlError, ValueError):
    """An input file whose content is not what the stage needs."""

    exit_code = 2


class MissingInputError(InputError, FileNotFoundError):
    """An input that does not exist."""

    def __str__(self) -> str:  # FileNotFoundError would print an errno
        return " ".join(str(argument) for argument in self.args)


class OutputExistsError(UsageError, FileExistsError):
    """An output that exists already and was neither to be overwritten nor resumed."""

    def __str__(self) -> str:
        return " ".join(str(argument) for argument in self.args)


class MissingExtraError(UsageError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""

    def __str__(self) -> str:
        return " ".join(str(argument) for argument in self.args)


class RunError(DialrlError, RuntimeError):
    """Work that was started and could not be finished."""


class WriteError(RunError, OSError):
    """An output that could not be written: a full disk, a place that takes no files."""

    def __str__(self) -> str:
        return " ".join(str(argument) for argument in self.args)


class FailureThresholdError(RunError):
    """More dialogues or judgements failed than the run allows."""


class HaltError(RunError):
    """No fault of a dialogue or judgement: the stage ends, what is finished is kept, and --resume goes on."""


class EngineError(HaltError):
    """The engine that draws replies broke, so the rollout ends."""


class NumericalError(RunError, ArithmeticError):
    """A value at a trained place that is not finite."""


def missing_extra(extra: str, module: str) -> MissingExtraError:
    """Error for a missing optional dependency ``module`` which the extra ``extra`` brings."""
    return MissingExtraError(
        f"This needs the package '{module}', which is not installed. Install it with: pip install 'dialrl[{extra}]'"
    )
