"""Text of models, files and users as it may go to a terminal. Light: the error path imports it too."""

import unicodedata


def clean(text: str) -> str:
    """``text`` with control, format and surrogate characters as escapes; line breaks are kept.

    Example: ``"\\x1b[31mred"`` becomes ``"\\\\u001b[31mred"``, which no terminal obeys.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
