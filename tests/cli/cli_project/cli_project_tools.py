from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import text_of
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results, say

PIN = "4711-very-secret"


async def pay(amount: int, to: str, pin: str) -> str:
    """Pay somebody.

    Args:
        amount: How much, in EUR.
        to: Whom.
        pin: The card's pin.
    """
    return f"paid {amount} to {to}"


async def hurry(reason: str) -> str:
    """Do something that cannot wait.

    Args:
        reason: Why.
    """
    return f"hurried: {reason}"


async def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: Where.
    """
    return f"nothing at {place}"


def react(request: CompletionRequest) -> Completion:
    """`pay N`, `hurry`, `look`, and everything else is answered."""
    settled = results(request)
    if settled:
        return respond("; ".join(f"{part.code} {text_of(part.value)}".strip() for part in settled))
    if "An approver asks" in last_user_text(request):
        return say("The invoice is due.")
    word, _, rest = last_user_text(request).partition(" ")
    if word == "pay":
        return calls(("pay", {"amount": int(rest), "to": "Ana", "pin": PIN}), text="Ana wants her money.")
    if word == "hurry":
        return calls(("hurry", {"reason": "now"}))
    if word == "look":
        return calls(("look", {"place": "home"}))
    return respond("I can pay, hurry and look.", "clarifying")


model = ScriptedModel(react)
