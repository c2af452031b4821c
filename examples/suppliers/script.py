"""The scripted model of supplier records. The example needs no key."""

import re
from typing import Final

from signoff.testing import (
    Completion,
    CompletionRequest,
    ScriptedModel,
    calls,
    last_user_text,
    respond,
    results,
    say,
)

_CHANGE: Final = re.compile(r"account of (\w+) to ([A-Z]{2}\d{2}(?: ?\w{1,4})+)")
LETTER: Final = "The letter of 12 November, signed by Nordwind's director, names this account."


def react(request: CompletionRequest) -> Completion:
    """Propose the change of the message, answer an approver's question, then report the outcome."""
    if "An approver asks about your call" in last_user_text(request):
        return say(LETTER)
    settled = results(request)
    if settled:
        part = settled[-1]
        return respond(f"The account is {'changed' if part.code == 'ok' else 'as before'}. {part.note}".strip())
    found = _CHANGE.search(last_user_text(request))
    if found:
        return calls(("change_account", {"supplier": found[1], "account": found[2]}), text="Their letter asks for it.")
    return respond("Try “change the account of Nordwind to DE89 3704 0044 0532 0130 00”.", "clarifying")


model = ScriptedModel(react, examples=["change the account of Nordwind to DE89 3704 0044 0532 0130 00"])
