"""The errors that a channel may raise."""

from signoff.contracts.errors import Refused, Unavailable


class Forged(Refused):
    """The message is not from its claimed sender. Leads to 401 without a reason, and an entry in the audit log."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="forged")


class Malformed(Refused):
    """The message is from the vendor but cannot be parsed. Leads to 400."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="malformed")


class NotDelivered(Unavailable):
    """A card was not delivered. `code` is the vendor's. `again`: a retry can help, after at least `after` seconds.

    Without `again`, the dispatcher uses the person's next channel.
    """

    def __init__(self, message: str, *, code: str, again: bool, after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.again = again
        self.after = after
