"""`inbox`, `approve`, `deny`, `answer`, `happened`, `question`, `withdraw`, `reassign` and `add-approver`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from signoff.approvals.argument_rows import plural
from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.card_lines import check_seen, check_thread
from signoff.cli.terminal.edit_options import arguments_text, change_lines, edit_text, read_settings
from signoff.cli.terminal.options import Answerer, AsJson, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, receipt_line, waiting_table
from signoff.client.client import Client
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.decision import GrantRequest, Verdict
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.limits import MAX_REMEMBERED_USES
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.responses import EditPreview, WaitingCard
from signoff.formats.durations import seconds
from signoff.formats.json_reader import NotJson, read_json

UNCHANGED: Final = "you changed nothing; change a value, or approve the request unchanged"

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class ArgumentChange:
    """Edits before an approval: arguments by path, and further changes in an editor."""

    settings: Mapping[str, str | None] = field(default_factory=dict)
    editor: bool = False

    def __bool__(self) -> bool:
        return bool(self.settings) or self.editor


@dataclass(frozen=True)
class CommandAnswer:
    """An answer from the command line.

    `confirm` is the repeated value, `seen` the proof that `signoff show` prints below all values. `thread` is the mark
    that it prints below all questions and answers.
    """

    verdict: Verdict
    person: str = ""
    reason: str = ""
    result: str = ""
    remember: GrantRequest | None = None
    confirm: str = ""
    change: ArgumentChange = ArgumentChange()
    seen: str = ""
    thread: str = ""
    answer: Any = None


Names = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Short codes such as K7Q-2FM, or approval ids; each by itself.")
]
Name = Annotated[str, typer.Argument(metavar="ID", help="A short code such as K7Q-2FM, or an approval id.")]
To = Annotated[str, typer.Argument(metavar="PERSON", help="The id of a person who may decide the request.")]
Where = Annotated[
    str, typer.Option(help="With --remember: which calls, in CEL over `args`; else those with the same arguments.")
]
Lasting = Annotated[str, typer.Option("--for", help="With --remember: for how long, such as 2h or 30d.")]
Uses = Annotated[int, typer.Option(min=1, max=MAX_REMEMBERED_USES, help="With --remember: for how many calls.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change an argument first, such as totalCost=380; repeatable."),
]
Nulls = Annotated[
    list[str] | None,
    typer.Option("--null", metavar="PATH", help="Make an argument null first, such as note; repeatable."),
]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="With --remember: not only in this session.")]


@app.command()
def inbox(
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait for a person, soonest deadline first."""
    run(lambda out: _inbox(out, url, person), as_json=as_json)


@app.command()
def approve(
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; kept with the decision.")] = "",
    confirm: Annotated[str, typer.Option(help="For requests that ask for it: a value of the card, typed again.")] = "",
    seen: Annotated[str, typer.Option(help="For incomplete cards: the proof that `signoff show` prints.")] = "",
    thread: Annotated[str, typer.Option(help="After questions: the mark that `signoff show` prints.")] = "",
    settings: Settings = None,
    nulls: Nulls = None,
    editor: Annotated[bool, typer.Option("--edit", help="Change the arguments first, as JSON in $EDITOR.")] = False,
    remember: Annotated[bool, typer.Option("--remember", help="Approve the next calls like this, too.")] = False,
    where: Where = "",
    lasting: Lasting = "1h",
    uses: Uses = 10,
    everywhere: Everywhere = False,
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Approve requests: their calls run once each, with exactly the arguments shown, or with your changes.

    For a call whose outcome is unknown, this means that it did not happen, and it runs again.
    """
    wish = _wish(remember, where, lasting, uses, everywhere)
    change = ArgumentChange(read_settings(settings or (), nulls or ()), editor)
    if (seen or thread) and len(names) > 1:
        raise typer.BadParameter("this is of one request alone", param_hint="--seen/--thread")
    if change and len(names) > 1:
        raise typer.BadParameter("only one request at a time can be changed", param_hint="--set/--edit")
    answer = CommandAnswer("approved", person, reason, "", wish, confirm, change, seen, thread)
    run(lambda out: _decide(out, names, answer, url), as_json=as_json)


@app.command()
def deny(
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; the agent reads it.")] = "",
    remember: Annotated[bool, typer.Option("--remember", help="Deny the next calls like this, too.")] = False,
    where: Where = "",
    lasting: Lasting = "1h",
    uses: Uses = 10,
    everywhere: Everywhere = False,
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Deny requests: their calls do not run, and the agents read the reason. A call whose outcome is unknown is given
    up.
    """
    wish = _wish(remember, where, lasting, uses, everywhere)
    answer = CommandAnswer("denied", person, reason, remember=wish)
    run(lambda out: _decide(out, names, answer, url), as_json=as_json)


@app.command()
def answer(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The answer, by the tool's `answer_schema`.")],
    reason: Annotated[str, typer.Option(help="A remark; the agent reads it.")] = "",
    seen: Annotated[str, typer.Option(help="For incomplete cards: the proof that `signoff show` prints.")] = "",
    thread: Annotated[str, typer.Option(help="After questions: the mark that `signoff show` prints.")] = "",
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Answer a request in place of its call: the call does not run, and the agent reads your answer."""
    try:
        given = read_json(value)
    except NotJson as error:
        raise typer.BadParameter(f"this {error}", param_hint="JSON") from None
    said = CommandAnswer("answered", person, reason, seen=seen, thread=thread, answer=given)
    run(lambda out: _decide(out, [name], said, url), as_json=as_json)


@app.command()
def happened(
    name: Name,
    result: Annotated[str, typer.Option(help="The result, which the agent reads as the call's.")] = "",
    reason: Annotated[str, typer.Option(help="How you know; kept with the decision.")] = "",
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Report that a call whose outcome is unknown did happen. `approve` runs it again, `deny` gives it up."""
    answer = CommandAnswer("happened", person, reason, result)
    run(lambda out: _decide(out, [name], answer, url), as_json=as_json)


@app.command()
def question(
    name: Annotated[str, typer.Argument(metavar="ID", help="A short code such as K7Q-2FM, or an approval id.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The question.")],
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask the agent about its waiting request, at most three times. `show` has the answer, and the mark to approve."""
    run(lambda out: _question(out, name, text, person, url), as_json=as_json)


@app.command()
def withdraw(
    names: Names,
    reason: Annotated[str, typer.Option(help="The reason, stored with the request and sent to the agents.")] = "",
    person: Annotated[
        str, typer.Option("--as", help="The withdrawing person's id; else `approver`, or the token's owner.")
    ] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw requests: their calls do not run. Open to the requester, the approvers and the role `admin`."""
    run(lambda out: _withdraw(out, names, reason, person, url), as_json=as_json)


@app.command()
def reassign(
    name: Name,
    to: To,
    reason: Annotated[str, typer.Option(help="Why; stored with the request.")] = "",
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Hand a request on to another approver. You may decide it no longer, and they cannot hand it on."""
    run(lambda out: _assign(out, name, to, reason, person, url, Client.reassign), as_json=as_json)


@app.command()
def add_approver(
    name: Name,
    to: To,
    reason: Annotated[str, typer.Option(help="Why; stored with the request.")] = "",
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Require the approval of one more person who may decide a request."""
    run(lambda out: _assign(out, name, to, reason, person, url, Client.add_approver), as_json=as_json)


async def _assign(
    out: Output, name: str, to: str, reason: str, person: str, url: str | None, act: Callable[..., Awaitable[Receipt]]
) -> int:
    async with gateway_client(url) as client:
        receipt = await act(client, name, to, by=person, reason=reason)
    out.show(receipt, receipt.message)
    return 1 if receipt.status == "refused" else 0


async def _inbox(out: Output, url: str | None, person: str) -> int:
    async with gateway_client(url) as client:
        cards = await client.inbox(person)
        others = [] if cards else await client.inbox(everyone=True)
    if cards:
        out.show(cards, waiting_table(cards, system_clock()), "", "signoff show CODE    signoff approve CODE")
    else:
        out.show(cards, f"no requests wait for {clean(person) or 'you'}; {_elsewhere(others)}")
    return 0


def _elsewhere(others: list[WaitingCard]) -> str:
    if not others:
        return '`signoff ask "..."` starts a turn'
    asked = ", ".join(sorted({clean(each) for card in others for each in card.approvers}))
    return f"{plural(len(others), 'request')} for {asked}: `signoff inbox --as PERSON` in development, else their token"


async def _question(out: Output, name: str, text: str, person: str, url: str | None) -> int:
    async with gateway_client(url) as client:
        receipt = await client.question(name, text, by=person)
    asked = receipt.status == "accepted"
    out.show(receipt, f"asked; `signoff show {clean(name)}` has the answer" if asked else receipt_line(receipt))
    return 0 if asked else 1


async def _withdraw(out: Output, names: list[str], reason: str, person: str, url: str | None) -> int:
    async with gateway_client(url) as client:
        return await _each(out, names, lambda name: _withdrawn(client, name, reason, person))


async def _withdrawn(client: Client, name: str, reason: str, person: str) -> tuple[Receipt, str]:
    request = await client.request(name)
    receipt = await client.withdraw(request, by=person, reason=reason)
    done = receipt.status == "accepted"
    return receipt, f"withdrawn: {request.card.effect}" if done else receipt_line(receipt)


async def _decide(out: Output, names: list[str], answer: CommandAnswer, url: str | None) -> int:
    async with gateway_client(url) as client:
        return await _each(out, names, lambda name: _answer(out, client, name, answer))


async def _each(out: Output, names: list[str], act: Callable[[str], Awaitable[tuple[Receipt, str]]]) -> int:
    """A refused name does not stop the others."""
    if len(names) == 1:
        # With one name an error ends the command; with several, each name needs its own receipt.
        receipt, line = await act(names[0])
        out.show(receipt, line)
        return 1 if receipt.status == "refused" else 0
    receipts: list[Receipt] = []
    for name in names:
        try:
            receipt, line = await act(name)
        except Refused as error:
            # Do not catch `ServerUnavailable`: the other names would fail as well.
            code: ReceiptCode = "unknown" if isinstance(error, NotFound) else "malformed"
            receipt = Receipt(status="refused", code=code, approval_id=clean(name), message=error.message)
            line = error.message
        receipts.append(receipt)
        out.say(f"{clean(name)}: {line}")
    out.show(receipts)
    return 1 if any(receipt.status == "refused" for receipt in receipts) else 0


async def _answer(out: Output, client: Client, name: str, answer: CommandAnswer) -> tuple[Receipt, str]:
    request = await client.request(name)
    receipt = await _send(out, client, request, answer)
    if answer.change and receipt.status in ("accepted", "counted"):
        request = await client.request(request.id)
    changed = "; ".join(change_lines(request)) if answer.change and receipt.status != "refused" else ""
    line = receipt_line(receipt, request.card.effect, doubt=request.kind == "in_doubt")
    wants_more = receipt.code == "malformed" and request.confirm == "type" and not answer.confirm
    return receipt, f"{line} ({changed})" if changed else f"{line}: add --confirm VALUE" if wants_more else line


async def _send(out: Output, client: Client, request: ApprovalRequest, answer: CommandAnswer) -> Receipt:
    if answer.verdict == "denied":
        return await client.deny(request, by=answer.person, reason=answer.reason, remember=answer.remember)
    if answer.verdict == "happened":
        return await client.happened(request, by=answer.person, reason=answer.reason, result=answer.result)
    read = {
        "seen": check_seen(request, answer.seen) if request.state == "pending" else "",
        "thread": check_thread(request, answer.thread) if request.state == "pending" else "",
    }
    if answer.verdict == "answered":
        return await client.answer(request, answer.answer, by=answer.person, reason=answer.reason, **read)
    edited = await _edit(out, client, request, answer.change) if answer.change else None
    return await client.approve(
        request,
        by=answer.person,
        reason=answer.reason,
        edited_args=edited,
        remember=answer.remember,
        confirm=answer.confirm,
        **read,
    )


async def _edit(out: Output, client: Client, request: ApprovalRequest, change: ArgumentChange) -> Mapping[str, Any]:
    """Raise `Refused` if the edited arguments do not fit or change nothing, `NotFound` for an unknown argument."""
    if request.edit == "off":
        raise Refused("these arguments cannot be edited; deny and name the change", code="not_allowed")
    found = await client.preview(request, change.settings)
    if change.editor:
        found = await _in_editor(out, client, request, arguments_text(found.args))
    if not found.changed:
        raise Refused(UNCHANGED)
    return found.args


async def _in_editor(out: Output, client: Client, request: ApprovalRequest, offered: str) -> EditPreview:
    problem = ""
    while True:
        written = edit_text(offered)
        if written is None:
            raise Refused(UNCHANGED)
        if problem and written == offered:
            raise Refused(problem, code="malformed")
        try:
            return await client.preview(request, text=written)
        except Refused as refused:
            problem, offered = refused.message, written
        out.say(f"{problem}; the editor opens again, leave it as it is to give up")


def _wish(remember: bool, where: str, lasting: str, uses: int, everywhere: bool) -> GrantRequest | None:
    if not remember:
        if where or everywhere:
            raise typer.BadParameter("this says which calls are meant by --remember; add that", param_hint="--where")
        return None
    try:
        length = seconds(lasting)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None
    return GrantRequest(scope="tenant" if everywhere else "session", where=where, seconds=length, uses=uses)
