"""A request as channels meet it."""

import random
from typing import Any

from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.ids import new_code
from signoff.contracts.person import Principal


def a_request(**fields: Any) -> ApprovalRequest:
    """A request as a turn would open it: `ana` asks."""
    given: dict[str, Any] = {"id": "main.s.t.c1.1", "code": "K7Q2FM", "digest": "d", "tenant": "main", "turn": "t"}
    more = {"call": "c1.1", "tool": "pay", "args": Content(inline={"to": "ü"}), "card": Card(effect="Pay")}
    return ApprovalRequest(**(given | more | {"requester": Principal(user="ana")} | fields))


def a_code(number: int) -> str:
    """A short code such as the store gives out, the same for the same number."""
    return new_code(random.Random(number).randrange)
