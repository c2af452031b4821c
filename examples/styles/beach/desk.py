"""A policy of the desk as a function."""

from signoff.tools import HandlerCall


def refunds(call: HandlerCall, context: dict[str, object]) -> str:
    """Small refunds are asked about, larger ones never made."""
    return "deny" if call.args["amount"] > 100 else "user"
