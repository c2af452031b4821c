"""The tool that needs approval, and the script that calls it."""

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results


async def pay(amount: int, to: str, note: str) -> str:
    """Pay somebody.

    Args:
        amount: How much, in EUR.
        to: Whom.
        note: What for.
    """
    return f"paid {amount} to {to}"


def react(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    amount = int(last_user_text(request))
    return calls(("pay", {"amount": amount, "to": "Ana", "note": "The invoice of last month, as agreed by phone."}))


model = ScriptedModel(react)
