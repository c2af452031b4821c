"""Attack 13: what the gateway signed once for one request is used later, elsewhere, or for another purpose."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attack_site import AttackSite, payee
from impostor import ForgedTurn, Impostor

from signoff.contracts.call import CallContext
from signoff.formats.replace import replace
from signoff.keys.key_files import read_private
from signoff.keys.signature_form import principal_as_asked
from signoff.keys.signatures import Signer
from signoff.testing.builders import a_permit


async def stolen(site: AttackSite, impostor: Impostor) -> tuple[ForgedTurn, CallContext]:
    """An ended turn that the impostor stands under, and what was signed for it."""
    rui = site.person("rui")
    key = await rui.ask([("look", {"place": "here"})])
    await rui.result(key)
    ctx = await impostor.ctx(key)
    return await impostor.stand(key), ctx


async def tipped(impostor: Impostor, forged: ForgedTurn, ctx: CallContext, args: dict[str, Any]) -> Any:
    """What the honest worker says to a tip, which no person need approve, under this context."""
    permit = a_permit(call="c1.9", digest=impostor.digest(ctx, "tip", args, "c1.9"), ctx=ctx)
    return await forged.run("tip", args, permit)


async def test_a_day_later_no_rule_runs_a_call(site: AttackSite, impostor: Impostor) -> None:
    # The same principal as the gateway made it two days ago: people are asked, where it ran for ever before. With
    # `expired` always false the tip ran.
    to = payee()
    args = {"amount": 6, "to": to}
    forged, ctx = await stolen(site, impostor)
    signer = Signer(read_private(site.folder / "gateway" / "signing-keys.json"))
    old = principal_as_asked(
        ctx, nonce=ctx.user.nonce, at=datetime.now(UTC) - timedelta(days=2), store_id=ctx.user.store_id
    )
    before = replace(ctx, user=old)
    before = replace(before, user=signer.sign_principal(before))
    reply = await tipped(impostor, forged, before, args)
    assert (reply.again, site.amounts(to)) == ("policy", [])
    # Within the day it runs: what a Temporal credential can do meanwhile is said in security.md.
    reply = await tipped(impostor, forged, ctx, args)
    assert (reply.outcome.code, site.amounts(to)) == ("ok", [6])


@pytest.mark.parametrize(
    "change",
    [
        {"channel": "slack"},
        {"route": "refunds"},
        {"step": "2"},
        {"actor": "another"},
        {"transient": ("tip",)},
        {"user": {"issued_at": datetime(2099, 1, 1, tzinfo=UTC)}},
        {"user": {"nonce": "another"}},
        {"user": {"store_id": ""}},
        {"user": {"actor": ""}},
    ],
)
async def test_nothing_of_what_was_asked_is_changed(
    site: AttackSite, impostor: Impostor, change: dict[str, Any]
) -> None:
    # Another channel, place, actor, time or nonce than the gateway signed for: refused. Without these under the
    # signature rules about the channel or the route were whoever's who reached Temporal; without `check_principal` in
    # `SignaturePolicy.requester_problem` each change but that of the actor let the tip run.
    to = payee()
    forged, ctx = await stolen(site, impostor)
    if "user" in change:
        change = {"user": replace(ctx.user, **change["user"])}
    reply = await tipped(impostor, forged, replace(ctx, **change), {"amount": 6, "to": to})
    assert (reply.outcome.code, site.amounts(to)) == ("refused", [])
    assert "the gateway did not sign this request" in str(reply.outcome.value.inline)
