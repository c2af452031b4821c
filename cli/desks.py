"""Two ways from a terminal to what waits: this installation's own server, or a gateway's API with a personal token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from signoff.cli.http.gateway_client import at_gateway, gateway_url
from signoff.cli.loading import loading
from signoff.cli.terminal.changes import Editable
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.names import DEFAULT_ASKER, DEFAULT_DECIDER
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import SayBody
from signoff.contracts.session_messages import SessionReceipt, SessionView
from signoff.contracts.turn import TurnView


class Desk(Protocol):
    """What the commands need of either way. Errors are Signoff's own."""

    async def waiting(self) -> list[WaitingCard]:
        """What waits for the person, soonest deadline first."""

    def whom(self) -> str:
        """How the person is called."""

    async def asked(self, name: str) -> tuple[str, ApprovalRequest | None]:
        """The approval id behind an id or a code, and its request; None when no worker can show it.

        Raises `NotFound`, `Refused`.
        """

    async def arguments(self, request: ApprovalRequest) -> Editable:
        """The arguments to change."""

    async def answer(
        self, answer: Decision, approval_id: str, request: ApprovalRequest | None, confirm: str = "", seen: str = ""
    ) -> Receipt:
        """Decide as the person, bound to the request as it was shown.

        `confirm` is what was typed again, `seen` what came with every value of a request whose card is not whole.
        """

    async def withdraw(self, name: str, reason: str) -> tuple[Receipt, str]:
        """Withdraw a request as the person; its receipt, and the effect that does not come. Raises as `asked`."""

    async def found(self, name: str) -> ApprovalRequest | TurnView:
        """The request or the turn of this name, secrets masked. Raises `NotFound`, `Refused`."""

    async def turn(self, name: str) -> str:
        """The turn of this name, to be followed. Raises `NotFound`, `Refused`."""

    async def cancel(self, turn: str) -> str:
        """Ask a turn that `turn` gave to stop: `cancelling`, or the state in which it is over already.

        Raises `NotFound`, `Refused` for who may not.
        """

    def follow(self, turn: str) -> AsyncIterator[TurnView]:
        """A turn each time it changed, secrets masked, until it is over."""

    async def turns(self, *, state: str, actor: str, limit: int) -> list[TurnRow]:
        """Turns in this state and of this actor, where named, newest first. Raises `NotFound`."""

    async def sessions(self, *, limit: int) -> list[SessionRow]:
        """Sessions that go on, newest first."""

    async def session(self, name: str) -> SessionView:
        """One session. Raises `NotFound`."""

    async def say(self, name: str, body: SayBody) -> SessionReceipt:
        """Say something as the person, in a session that begins with it if it is new; the receipt is never `refused`.

        Raises `NotFound`, `Refused`.
        """


@asynccontextmanager
async def desk_of(
    url: str | None,
    manifest: Path | None,
    address: str | None,
    *,
    looks: str | None = None,
    speaks: str | None = None,
    asks: str | None = None,
) -> AsyncIterator[Desk]:
    """The gateway at `url`, or of the token in the environment; without either this installation.

    The person, if one is needed, is `looks`, or `speaks` or `asks`, whom only the development profile takes at their
    word; "" is whose token it is, or the built-in approver, or for `asks` the built-in guest.
    """
    there = gateway_url(url, manifest, address)
    if there is not None:
        async with at_gateway(there, looks or speaks or asks or "") as gateway:
            yield gateway
        return
    with loading():
        from signoff.cli.here import Here  # noqa: PLC0415
        from signoff.cli.local.installation import find_workplace  # noqa: PLC0415
    place = find_workplace(manifest)
    person = None
    if asks is not None:
        person = place.speaker(asks or DEFAULT_ASKER)
    elif speaks is not None:
        person = place.speaker(speaks or DEFAULT_DECIDER)
    elif looks is not None:
        person = place.person(looks or DEFAULT_DECIDER)
    yield Here(place, await place.reach(address), person)
