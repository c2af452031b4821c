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
from signoff.testing.builders import a_run_task


async def stolen(site: AttackSite, impostor: Impostor) -> tuple[ForgedTurn, CallContext]:
    rui = site.person("rui")
    key = await rui.ask([("look", {"place": "here"})])
    await rui.result(key)
    ctx = await impostor.ctx(key)
    return await impostor.stand(key), ctx


async def tipped(impostor: Impostor, forged: ForgedTurn, ctx: CallContext, args: dict[str, Any]) -> Any:
    claim = a_run_task(call="c1.9", digest=impostor.digest(ctx, "tip", args, "c1.9"), ctx=ctx)
    return await forged.run("tip", args, claim)


async def test_expired_principal_runs_no_call_by_rule(site: AttackSite, impostor: Impostor) -> None:
    # With a principal signed two days ago approvers are asked; before the fix it ran forever. With `expired` always
    # false the tip ran.
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
    # Within a day it runs: security.md describes the remaining power of a Temporal credential.
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
async def test_changed_context_of_a_signed_principal_is_refused(
    site: AttackSite, impostor: Impostor, change: dict[str, Any]
) -> None:
    # A channel, place, actor, time or nonce other than the signed one is refused. Without these under the signature a
    # Temporal credential controlled rules about channel or route. Without `check_principal` in
    # `SignaturePolicy.requester_problem` each change except that of the actor let the tip run.
    to = payee()
    forged, ctx = await stolen(site, impostor)
    if "user" in change:
        change = {"user": replace(ctx.user, **change["user"])}
    reply = await tipped(impostor, forged, replace(ctx, **change), {"amount": 6, "to": to})
    assert (reply.outcome.code, site.amounts(to)) == ("refused", [])
    assert "the gateway did not sign this request" in str(reply.outcome.value.inline)
