"""Says where an error was raised, and nothing of its words: they may quote a secret, arguments or a conversation."""

import traceback


def trace_without_words(error: BaseException) -> str:
    """Returns the class of an error and the lines of code that it came through, the innermost last; for logs."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
