"""Histories reveal the hashes of stored texts: naming a hash in one's own turn reveals no text of others."""

import pytest
from attack_site import AttackSite, approval_id, payee
from begun_again import begun_again
from impostor import Impostor
from temporalio.client import WorkflowUpdateFailedError

from signoff.contracts import names
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart, Message, TextPart
from signoff.formats.replace import replace

SECRET = "TOPSECRET "


async def of_rui(site: AttackSite, impostor: Impostor) -> BlobRef:
    rui = site.person("rui")
    answer = await rui.http.post("/v1/turns", json={"text": SECRET + "y" * 9_000, "actor": "clerk"})
    body = answer.json()
    key = TurnKey(body["tenant"], body["session"], body["turn"])
    await rui.result(key)
    own = await (await site.browser("rui")).http.get(f"/turns/{'.'.join(key)}")
    assert SECRET in own.text
    [part] = (await impostor.input(key)).messages[0].parts
    assert isinstance(part, TextPart)
    assert part.text.blob is not None
    return replace(part.text.blob, preview="")


async def test_page_shows_no_text_of_others_by_its_hash(site: AttackSite, impostor: Impostor) -> None:
    # Zoe's own turn claims the text under the hash of Rui's as its own. Before the fix her page of that turn showed
    # it.
    zoe, ref = site.person("zoe"), await of_rui(site, impostor)
    own = await zoe.ask([("look", {"place": "x"})])
    await zoe.result(own)
    view = await impostor.view(own)
    transcript = (Message(role="user", parts=(TextPart(text=Content(blob=ref)),)),)
    lie = replace(view, messages=transcript, calls=())
    await begun_again(impostor, own, **{names.STATE: lie.model_dump(mode="json")})
    page = await (await site.browser("zoe")).http.get(f"/turns/{'.'.join(own)}")
    assert (page.status_code, SECRET in page.text) == (503, False)


async def test_gate_refuses_arguments_of_others_by_their_hash(site: AttackSite, impostor: Impostor) -> None:
    # The impostor has a call judged whose arguments are under the hash of Rui's call. Before the fix they were shown
    # to the approvers of Zoe's turn and to her.
    to, rui, ana, zoe = payee(), site.person("rui"), site.person("ana"), site.person("zoe")
    args = {"memo": SECRET + "z" * 9_000, "items": [1], "to": to}
    key = await rui.ask([("batch", args)])
    await ana.waiting(approval_id(key))
    parts = [part for message in (await impostor.view(key)).messages for part in message.parts]
    [call] = [part for part in parts if isinstance(part, CallPart)]
    assert call.args.blob is not None
    own = await zoe.ask([("look", {"place": "x"})])
    await zoe.result(own)
    ctx, forged = await impostor.ctx(own), await begun_again(impostor, own)
    task = GateTask(ctx=ctx, calls=(CallPart(call="c2.1", tool="batch", args=call.args),))
    with pytest.raises(WorkflowUpdateFailedError):
        await forged.schedule(names.GATE, "g1", task)
    assert (await zoe.see(approval_id(own, "c2.1"))).status == 404
