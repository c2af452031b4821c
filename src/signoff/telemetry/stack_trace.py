"""Returns the place of an error without its message, which may quote a secret, arguments or a conversation."""

import traceback


def trace_without_words(error: BaseException) -> str:
    """Return an error's class and its lines of code, innermost last, for logs."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
