"""Returns the place of an error without its message, which may quote a secret, arguments or a conversation."""

import traceback


def trace_without_words(error: BaseException) -> str:
    """The innermost line is last."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
