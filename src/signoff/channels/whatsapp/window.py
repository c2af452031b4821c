"""The 24 hours in which WhatsApp takes any message to a person, and the error codes of Meta."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from signoff.channels.vendor_http import Code, VendorAnswer, VendorErrors

OUTSIDE: Final = 131047
"""They wrote last more than 24 hours ago, so that only an approved template reaches them."""
_PAUSES: Final[Mapping[Code, float]] = {4: 60.0, 80007: 60.0, 130429: 5.0, 131056: 6.0}
"""Seconds to leave Meta alone after it said that there was too much: of the app, the account, the number, one pair."""
_PASSING: Final[frozenset[Code]] = frozenset((1, 2, 131000, 131016, 131057, 133004))
"""Faults of Meta's own, which pass."""
_MEANINGS: Final[Mapping[Code, str]] = {
    0: "the token is not valid; renew `token`",
    3: "the token lacks a permission; it needs whatsapp_business_messaging",
    # Meta has a code for each permission.
    **dict.fromkeys((10, *range(200, 300)), "the token lacks a permission; it needs whatsapp_business_messaging"),
    33: "there is no such number; check `phone_number_id`",
    100: "Meta finds the request wrong; check `phone_number_id` and `version`",
    190: "the token has expired or is not valid; renew `token`",
    368: "Meta has blocked the account for a breach of its policy",
    131026: "it cannot be delivered: the person has no WhatsApp, an old one, or has not agreed to Meta's terms",
    131030: "the person is not on the list of numbers that a test account may write to",
    131031: "Meta has locked the account",
    131042: "the account's payment method does not work",
    OUTSIDE: "the person wrote last more than 24 hours ago; an approved `template` would reach them",
    131048: "Meta stopped the number for its quality: too many people blocked it or reported it",
    131049: "Meta keeps the message back, so that people are not sent too many",
    132000: "the template has another number of parameters than the one that is documented",
    132001: "there is no approved template of that name in that language; check `template` and `languages`",
    132005: "the template is too long once it is filled in",
    132007: "Meta refuses characters in the template's parameters",
    132012: "the template's parameters are of another format than those that are documented",
    132015: "Meta has paused the template for its quality",
    132016: "Meta has disabled the template for its quality",
}
_UNNAMED: Final = -1
"""An error that has no code of Meta's."""

WINDOW_SECONDS: Final = 24 * 3_600
_MARGIN_SECONDS: Final = 120
"""Meta's clock is not ours, and a message takes its time."""
_KEPT: Final = 20_000
"""So many people are remembered; of the others it is not known, as after a start."""


class ServiceWindow:
    """When people wrote last, by each of their names. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, float] = OrderedDict()

    def note_message(self, name: str, at: float) -> None:
        """Opens the window of somebody who wrote; a message that is brought again later, or out of order, opens nothing
        anew.
        """
        # Taken out and put in again: the first in it, which goes when it is full, was heard longest ago.
        self._last[name] = max(at, self._last.pop(name, 0.0))
        while len(self._last) > _KEPT:
            self._last.popitem(last=False)

    def is_open(self, name: str, now: float) -> bool:
        """Returns whether it is known that they wrote recently enough."""
        return now - self._last.get(name, 0.0) < WINDOW_SECONDS - _MARGIN_SECONDS

    def shut(self, name: str) -> None:
        """Closes a window that Meta says is not open, whatever we thought."""
        self._last.pop(name, None)


def _code(answer: VendorAnswer) -> int | None:
    fault = answer.body.get("error")
    code = fault.get("code") if isinstance(fault, dict) else None
    return code if isinstance(code, int) else None if fault is None else _UNNAMED


ERRORS: Final = VendorErrors("Meta", _code, meanings=_MEANINGS, pauses=_PAUSES, passing=_PASSING)
