"""The scripted model of accounts payable. It understands two requests, and the example needs no key."""

import json
import re
from typing import Final

from signoff.testing import (
    Completion,
    CompletionRequest,
    ResultPart,
    ScriptedModel,
    calls,
    last_user_text,
    respond,
    results,
    text_of,
)

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:euros?|eur|€)", re.IGNORECASE)
_INVOICE: Final = re.compile(r"\b(INV-\d+)\b")
_PAYEE: Final = re.compile(r"\bto (\w+)")
_OFFICE: Final = re.compile(r"\bin (\w+)")

HELP: Final = (
    "I can pay an invoice and top up petty cash. "
    "Try “pay 12000 euro to Nordwind for INV-4711” or “top up petty cash in Lisbon by 80 euro”."
)


def react(request: CompletionRequest) -> Completion:
    """Propose the call that the message asks for, then report its outcome."""
    settled = results(request)
    if settled:
        return respond(" ".join(_report(part) for part in settled))
    text = last_user_text(request)
    amount, invoice, payee, office = (found.search(text) for found in (_AMOUNT, _INVOICE, _PAYEE, _OFFICE))
    if amount and invoice and payee:
        args = {"invoice": invoice[1], "payee": payee[1], "amount": float(amount[1]), "currency": "EUR"}
        return calls(("release_payment", args), text="This invoice is due.")
    if amount and office:
        return calls(("top_up", {"office": office[1], "amount": float(amount[1])}), text="The cash box is low.")
    return respond(HELP, "clarifying")


def _report(part: ResultPart) -> str:
    value = part.value.inline
    if part.code == "denied" and isinstance(value, dict):
        return f"I could not do that: it was denied ({value.get('reason', '')})."
    text = text_of(part.value)
    if part.code != "ok" or not text.startswith("{"):
        # A dry run has no result.
        return f"That came to: {text}"
    done = json.loads(text)
    what = f"{done['payee']} for {done['invoice']}" if "payee" in done else f"the office in {done['office']}"
    return f"{part.note} Paid {done['amount']:g} EUR to {what}.".strip()


model = ScriptedModel(react, examples=["pay 9400 euro to Nordwind for INV-4713"])
