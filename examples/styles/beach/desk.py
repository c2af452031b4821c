"""A policy of the desk as a function."""

from signoff.tools import HandlerCall


def refunds(call: HandlerCall, context: dict[str, object]) -> str:
    """Ask for approval of small refunds, and deny larger ones."""
    return "deny" if call.args["amount"] > 100 else "user"
