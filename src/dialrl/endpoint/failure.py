"""What a call can end in besides an answer. No message ever holds a key or a whole request."""

from dialrl.errors import HaltError, RunError

_LONGEST_DETAIL = 300


class ModelCallError(RunError):
    """One call failed for good. ``reason`` is a short word: timeout, connection, bad_response, http_500 ...

    It breaks the dialogue or judgement it was made for, and nothing else.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}"[:_LONGEST_DETAIL])
        self.reason = reason


class EndpointError(HaltError):
    """An endpoint that cannot serve any call: nobody listens there, the key is refused, the model is not known."""


class BudgetError(HaltError):
    """The next call could exceed the budget."""


def redacted(text: str, key: str | None) -> str:
    """``text`` without the key, should a server echo it."""
    return text if not key else text.replace(key, "[key]")
