"""The errors that a channel may raise: what came in is forged or malformed, or a card did not get out."""

from signoff.contracts.errors import Refused, Unavailable


class Forged(Refused):
    """It does not come from whom it claims: 401, without a word of why, and one line in the record."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="forged")


class Malformed(Refused):
    """It comes from the vendor but cannot be read: 400."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="malformed")


class NotDelivered(Unavailable):
    """A card did not get out. `code` is the vendor's; `again` whether trying again can help, `after` seconds at least.

    Without `again` the dispatcher goes on to the person's next channel.
    """

    def __init__(self, message: str, *, code: str, again: bool, after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.again = again
        self.after = after
