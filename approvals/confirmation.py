"""Checks what a policy with `confirm: type` demands of an approval: a value of its card, typed again."""

from typing import Final

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import read_code

MISSING: Final = "this request wants a value of its card typed again, such as the amount or the name"


def confirmed(request: ApprovalRequest, typed: str) -> bool:
    """Returns whether `typed` is what `request` demands: a value of its card, its code if there is none."""
    if request.confirm != "type":
        return True
    values = [row.value for row in request.card.rows if row.name and not row.secret]
    given = typed.strip()
    return bool(given) and (given in values if values else read_code(given) == request.code)
