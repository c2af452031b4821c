import uuid

from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.activity_messages import OutcomeTask, ToolReply
from signoff.testing.builders import a_run_task


async def test_turns_of_one_id_in_two_sessions_both_run(site: AttackSite) -> None:
    # Rui and Max give their turns the same id in their own sessions and tip the same amount: both tips run. Without
    # session, requester and nonce in `call_digest` Max's tip had the key of Rui's ticket, was refused and never ran.
    to, turn = payee(), uuid.uuid4().hex[:12]
    for name in ("rui", "max"):
        person = site.person(name)
        key = await person.ask([("tip", {"amount": 3, "to": to})], session=f"{name}-{turn}", turn=turn)
        assert (await person.result(key))["calls"][0]["code"] == "ok"
    assert site.amounts(to) == [3, 3]


async def test_ticket_cannot_be_voided_from_another_turn(site: AttackSite, impostor: Impostor) -> None:
    # The digest on a card is voided from another turn before approvers answer: the approved call still runs. Without
    # `_TAKE_OVER` in `add_claim` the approved call was refused and never ran.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    args = {"amount": 4, "to": to}
    key = await rui.ask([("pay", args)])
    shown = await ana.waiting(approval_id(key))
    digest = impostor.digest(await impostor.ctx(key), "pay", args)
    other = await rui.ask([("look", {"place": "here"})])
    await rui.result(other)
    claim = a_run_task(args=args, digest=digest, ctx=await impostor.ctx(other))
    forged = await impostor.stand(other)
    task = OutcomeTask(run=claim)
    reply = ToolReply.model_validate(await forged.schedule(names.OUTCOME, "1", task))
    assert reply.again == "lapsed"
    assert (await ana.decide(shown)).status_code == 200
    result = await rui.result(key)
    assert ([call["code"] for call in result["calls"]], site.amounts(to)) == (["ok"], [4])
    # Its outcome is not revealed to another turn, either.
    reply = ToolReply.model_validate(await forged.schedule(names.OUTCOME, "2", task))
    assert reply.outcome is not None
    assert reply.outcome.code == "in_doubt"


async def test_second_action_under_one_call_is_refused(site: AttackSite, impostor: Impostor) -> None:
    # A call that ran by rule is repeated with other arguments under the turn's own id: it is refused and paid once.
    # Without `another_action` in `Store.claim` both ran under one call, and the turn reported one.
    to, rui = payee(), site.person("rui")
    key = await rui.ask([("tip", {"amount": 5, "to": to})])
    await rui.result(key)
    ctx = await impostor.ctx(key)
    forged = await impostor.stand(key)
    other = {"amount": 50, "to": to}
    claim = a_run_task(digest=impostor.digest(ctx, "tip", other), ctx=ctx)
    reply = await forged.run("tip", other, claim)
    assert reply.outcome is not None
    assert (reply.outcome.code, site.amounts(to)) == ("refused", [5])
    assert "another action was begun under this call" in str(reply.outcome.value.inline)
