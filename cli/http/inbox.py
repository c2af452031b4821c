"""`inbox`, `approve`, `deny`, `happened` and `withdraw`."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import typer

from signoff.approvals.confirmation import is_confirmed, missing_words
from signoff.approvals.unseen_values import SEEN_CHARS, SEEN_NEEDED
from signoff.cli.desks import Desk, desk_of
from signoff.cli.loading import loading
from signoff.cli.terminal.changes import change_lines, read_settings
from signoff.cli.terminal.options import Address, Answerer, AsJson, Manifest, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, receipt_line, waiting_table
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.decision import Decision, Remember
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import show_code
from signoff.contracts.limits import MAX_REMEMBERED_USES
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.formats.durations import seconds

Opened: TypeAlias = AbstractAsyncContextManager[Desk]

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Change:
    """What is to be changed first: arguments by path, and whatever else an editor makes of them."""

    settings: Mapping[str, str] = field(default_factory=dict)
    editor: bool = False

    def __bool__(self) -> bool:
        return bool(self.settings) or self.editor


@dataclass(frozen=True)
class Said:
    """An answer as the command line has it: `confirm` is what was typed again, `change` what is to be changed,
    `seen` what `signoff show` told below every value."""

    answer: Decision
    confirm: str = ""
    change: Change = Change()
    seen: str = ""


Names = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Short codes such as K7Q-2FM, or approval ids; each by itself.")
]
Where = Annotated[
    str, typer.Option(help="With --remember: which calls, in CEL over `args`; else those with the same arguments.")
]
Lasting = Annotated[str, typer.Option("--for", help="With --remember: for how long, such as 2h or 30d.")]
Uses = Annotated[int, typer.Option(min=1, max=MAX_REMEMBERED_USES, help="With --remember: for how many calls.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change an argument first, such as totalCost=380; repeatable."),
]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="With --remember: not only in this session.")]


@app.command()
def inbox(
    person: Answerer = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait for a person, soonest deadline first."""
    run(lambda out: _inbox(out, desk_of(url, manifest, address, looks=person)), as_json=as_json)


@app.command()
def approve(
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; kept with the decision.")] = "",
    confirm: Annotated[str, typer.Option(help="For requests that ask for it: a value of the card, typed again.")] = "",
    seen: Annotated[str, typer.Option(help="For cards that are not whole: what `signoff show` says to add.")] = "",
    settings: Settings = None,
    editor: Annotated[bool, typer.Option("--edit", help="Change the arguments first, as JSON in $EDITOR.")] = False,
    remember: Annotated[bool, typer.Option("--remember", help="Approve the next calls like this, too.")] = False,
    where: Where = "",
    lasting: Lasting = "1h",
    uses: Uses = 10,
    everywhere: Everywhere = False,
    person: Answerer = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Approve requests: their calls run, once each, with exactly the arguments shown, or as you change them.

    Of a call in doubt: it did not happen, and runs again.
    """
    wish = _wish(remember, where, lasting, uses, everywhere)
    change = Change(read_settings(settings or ()), editor)
    if seen and len(names) > 1:
        raise typer.BadParameter("this is of one request alone", param_hint="--seen")
    if change and len(names) > 1:
        raise typer.BadParameter("only one request at a time can be changed", param_hint="--set/--edit")
    said = Said(Decision(approval_id="", verdict="approved", reason=reason, remember=wish), confirm, change, seen)
    run(lambda out: _decide(out, names, said, desk_of(url, manifest, address, speaks=person)), as_json=as_json)


@app.command()
def deny(
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; the agent is told.")],
    remember: Annotated[bool, typer.Option("--remember", help="Deny the next calls like this, too.")] = False,
    where: Where = "",
    lasting: Lasting = "1h",
    uses: Uses = 10,
    everywhere: Everywhere = False,
    person: Answerer = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Deny requests: their calls do not run, and the agents are told why. Of a call in doubt: give up."""
    wish = _wish(remember, where, lasting, uses, everywhere)
    said = Said(Decision(approval_id="", verdict="denied", reason=reason, remember=wish))
    run(lambda out: _decide(out, names, said, desk_of(url, manifest, address, speaks=person)), as_json=as_json)


@app.command()
def happened(
    name: Annotated[str, typer.Argument(metavar="ID", help="A short code such as K7Q-2FM, or an approval id.")],
    result: Annotated[str, typer.Option(help="What came of it; the agent reads it as the call's result.")] = "",
    reason: Annotated[str, typer.Option(help="How you know; kept with the decision.")] = "",
    person: Answerer = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say that a call in doubt happened; `approve` says that it did not and runs it, `deny` gives it up."""
    said = Said(Decision(approval_id="", verdict="happened", reason=reason, result=result))
    run(lambda out: _decide(out, [name], said, desk_of(url, manifest, address, speaks=person)), as_json=as_json)


@app.command()
def withdraw(
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; kept with the request, and the agents are told.")] = "",
    person: Annotated[
        str, typer.Option("--as", help="Who withdraws: the id of a person; else `approver`, or whose token it is.")
    ] = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw requests: their calls do not run. For who asked, who may decide, and the role `admin`."""
    run(lambda out: _withdraw(out, names, reason, desk_of(url, manifest, address, speaks=person)), as_json=as_json)


async def _withdraw(out: Output, names: list[str], reason: str, opened: Opened) -> int:
    async with opened as desk:
        return await _each(out, names, lambda name: _withdrawn(desk, name, reason))


async def _withdrawn(desk: Desk, name: str, reason: str) -> tuple[Receipt, str]:
    receipt, effect = await desk.withdraw(name, reason)
    done = receipt.status == "accepted"
    return receipt, f"withdrawn{': ' if effect else ''}{effect}" if done else receipt_line(receipt)


async def _inbox(out: Output, opened: Opened) -> int:
    async with opened as desk:
        cards = await desk.waiting()
    if cards:
        out.show(cards, waiting_table(cards, system_clock()), "", "signoff show CODE    signoff approve CODE")
    else:
        out.show(cards, f'nothing waits for {desk.whom()}; `signoff ask "..."` starts a turn')
    return 0


async def _decide(out: Output, names: list[str], said: Said, opened: Opened) -> int:
    async with opened as desk:
        return await _each(out, names, lambda name: _answered(out, desk, name, said))


async def _each(out: Output, names: list[str], act: Callable[[str], Awaitable[tuple[Receipt, str]]]) -> int:
    """One receipt a name, in their order; one that is refused keeps none of the others from counting."""
    if len(names) == 1:
        # An error ends the command here; of several each has to be told by a receipt of its own.
        receipt, line = await act(names[0])
        out.show(receipt, line)
        return 1 if receipt.status == "refused" else 0
    receipts: list[Receipt] = []
    for name in names:
        try:
            receipt, line = await act(name)
        except Refused as error:
            # Not `ServerUnavailable`: the others would fail as this one does.
            code: ReceiptCode = "unknown" if isinstance(error, NotFound) else "malformed"
            receipt = Receipt(status="refused", code=code, approval_id=clean(name), message=error.message)
            line = error.message
        receipts.append(receipt)
        out.say(f"{clean(name)}: {line}")
    out.show(receipts)
    return 1 if any(receipt.status == "refused" for receipt in receipts) else 0


async def _answered(out: Output, desk: Desk, name: str, said: Said) -> tuple[Receipt, str]:
    """The receipt of one answer, and a line that says it."""
    approval_id, request = await desk.asked(name)
    answer = said.answer
    seen = request
    if said.change:
        if request is None:
            raise ServerUnavailable("changed arguments cannot be checked while no worker answers; try again")
        with loading():
            from signoff.cli.terminal.edit_options import edited_args  # noqa: PLC0415
            from signoff.gateway.edited_card import as_edited  # noqa: PLC0415
        found = await desk.arguments(request)
        edited = edited_args(out, request, found, said.change.settings, editor=said.change.editor)
        answer = answer.model_copy(update={"edited_args": edited})
        # The card as it will be: the value that is typed again has to be one that is approved.
        seen = as_edited(request, edited, found.catalog)
    if seen is not None and answer.verdict == "approved":
        _check_confirmed(seen, said.confirm)
    read = ""
    if request is not None and answer.verdict == "approved" and request.state == "pending":
        read = _check_seen(request, said.seen)
    receipt = await desk.answer(answer, approval_id, request, said.confirm, read)
    if request is None:
        return receipt, receipt_line(receipt)
    if said.change and receipt.status in ("accepted", "counted"):
        request = (await desk.asked(approval_id))[1] or request
    changed = "; ".join(change_lines(request)) if said.change and receipt.status != "refused" else ""
    line = receipt_line(receipt, request.card.effect, doubt=request.kind == "in_doubt")
    return receipt, f"{line} ({changed})" if changed else line


def _wish(remember: bool, where: str, lasting: str, uses: int, everywhere: bool) -> Remember | None:
    if not remember:
        if where or everywhere:
            raise typer.BadParameter("this says which calls are meant by --remember; add that", param_hint="--where")
        return None
    try:
        length = seconds(lasting)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None
    return Remember(scope="tenant" if everywhere else "session", where=where, seconds=length, uses=uses)


def _check_seen(request: ApprovalRequest, written: str) -> str:
    """What proves that every value was on a screen, where the card has no room for all; "" for a whole card.

    Raises `Refused` where it was not.
    """
    if request.card.whole:
        return ""
    if len(written) < SEEN_CHARS or not request.seen.startswith(written):
        told = f"`signoff show {show_code(request.code)}` shows all of them and says what to add"
        raise Refused(f"{SEEN_NEEDED}; {told}", code="malformed")
    return request.seen


def _check_confirmed(request: ApprovalRequest, typed: str) -> None:
    """Raises `Refused` where the policy wants a value of the card typed again and it was not."""
    if not is_confirmed(request, typed):
        raise Refused(f"{missing_words(request)}: add --confirm VALUE")
