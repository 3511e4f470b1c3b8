"""Why a dialogue ended: the values of the column ``end_reason``, and what each says about ``terminated``/``truncated``.

A dialogue that *terminated* came to an end of its own; one that was *truncated* was cut by a limit; one in ``error``
broke and is neither. Source: docs/trajectory-file.md. Light to import.
"""

TERMINATED_REASONS = ("success", "collapse", "regression", "oscillation", "farewell", "answer", "format_failure")
TRUNCATED_REASONS = ("turn_limit", "token_limit", "stalled", "timeout")
END_REASONS = (*TERMINATED_REASONS, *TRUNCATED_REASONS, "error")
STOP_RULE_REASONS = ("success", "collapse", "regression", "oscillation")
