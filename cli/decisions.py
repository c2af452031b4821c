"""`inbox`, `approve` and `deny`."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from signoff import listing
from signoff.cli.lookups import find_approval
from signoff.cli.options import Address, AsJson, Decider, Manifest
from signoff.cli.output import Output, run
from signoff.cli.words import receipt_line, utc_now, waiting_table
from signoff.cli.workplace import Workplace, find_workplace
from signoff.client import Signoff
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.errors import Refused, ServerUnavailable
from signoff.contracts.ids import ApprovalKey
from signoff.contracts.person import Person
from signoff.registry.seats import rights

CHANNEL = "cli"

app = typer.Typer(rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="ID", help="A short code such as K7Q-2FM, or an approval id.")]


@app.command()
def inbox(
    person: Decider = "approver", manifest: Manifest = None, address: Address = None, as_json: AsJson = False
) -> None:
    """List the requests that wait for a person, soonest deadline first."""
    run(lambda out: _inbox(out, person, manifest, address), as_json=as_json)


@app.command()
def approve(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; kept with the decision.")] = "",
    confirm: Annotated[str, typer.Option(help="For requests that ask for it: a value of the card, typed again.")] = "",
    person: Decider = "approver",
    manifest: Manifest = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Approve a request: its call runs, once, with exactly the arguments shown."""
    decision = Decision(approval_id="", verdict="approved", reason=reason)
    run(lambda out: _decide(out, name, decision, confirm, person, manifest, address), as_json=as_json)


@app.command()
def deny(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; the agent is told.")],
    person: Decider = "approver",
    manifest: Manifest = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Deny a request: its call does not run, and the agent is told why."""
    decision = Decision(approval_id="", verdict="denied", reason=reason)
    run(lambda out: _decide(out, name, decision, "", person, manifest, address), as_json=as_json)


async def _inbox(out: Output, person_id: str, manifest: Path | None, address: str | None) -> int:
    place = find_workplace(manifest)
    person = place.person(person_id)
    signoff = await place.reach(address)
    entries = rights(person, place.people.delegators(person.id, place.tenant, utc_now()))
    cards = await listing.waiting(signoff.temporal, tenant=place.tenant, approvers=entries)
    if cards:
        out.show(cards, waiting_table(cards, utc_now()), "", "signoff show CODE    signoff approve CODE")
    else:
        out.show(cards, f'nothing waits for {person.name or person.id}; `signoff ask "..."` starts a turn')
    return 0


async def _decide(
    out: Output,
    name: str,
    answer: Decision,
    confirm: str,
    person_id: str,
    manifest: Path | None,
    address: str | None,
) -> int:
    place = find_workplace(manifest)
    person = place.person(person_id)
    signoff = await place.reach(address)
    key = await find_approval(signoff, name, tenant=place.tenant, approvers=None)
    request = await _request(signoff, key)
    if request is not None and answer.verdict == "approved":
        _check_confirmed(request, confirm)
    decision = signed_off(answer, key, request, person, utc_now())
    if request is None:
        decision = decision.model_copy(update={"revision": await _revision(signoff, place, key)})
    receipt = await signoff.decide(decision)
    out.show(receipt, receipt_line(receipt, request.card.effect if request is not None else ""))
    return 1 if receipt.status == "refused" else 0


def signed_off(
    answer: Decision, key: ApprovalKey, request: ApprovalRequest | None, person: Person, now: datetime
) -> Decision:
    """`answer` as this person's, bound to the request as it was shown. `request` is None when nobody could show it."""
    return answer.model_copy(
        update={
            "approval_id": key.id,
            "revision": request.revision if request is not None else None,
            "digest": request.digest if request is not None else "",
            "subject": person.id,
            "channel": CHANNEL,
            "assurance": "session",
            "received_at": now,
        }
    )


async def _request(signoff: Signoff, key: ApprovalKey) -> ApprovalRequest | None:
    """The request, or None when no worker is there to show it: the answer is stored all the same."""
    try:
        return await signoff.request(key.id)
    except ServerUnavailable:
        return None


async def _revision(signoff: Signoff, place: Workplace, key: ApprovalKey) -> int | None:
    cards = await listing.waiting(signoff.temporal, tenant=place.tenant)
    return next((card.revision for card in cards if card.id == key.id), None)


def _check_confirmed(request: ApprovalRequest, typed: str) -> None:
    """Raises `Refused` where the policy wants a value of the card typed again and it was not."""
    if request.confirm != "type":
        return
    values = [row.value for row in request.card.rows if row.name and not row.secret]
    if typed.strip() not in values or not typed.strip():
        raise Refused(
            "this request wants a value of its card typed again, such as the amount or the name: add --confirm VALUE"
        )
