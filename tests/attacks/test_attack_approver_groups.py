from attack_site import AttackSite, approval_id, payee, receipt
from impostor import Impostor


async def test_two_approvers_of_one_group_cannot_fill_two_groups(site: AttackSite, impostor: Impostor) -> None:
    # Fay and Finn of finance approve: the request waits for legal, and a permit with both answers pays nothing. With
    # `groups` omitted in `VoterSet.suffices` 9 EUR were paid by the forged permit.
    to = payee()
    key = await site.person("rui").ask([("settle", {"amount": 9, "to": to})])
    approval = approval_id(key)
    assert (await site.person("fay").approve(approval))["open"] == [{"of": ["role:legal"], "quorum": 1}]
    second = await site.person("finn").approve(approval)
    assert (second["status"], second["votes"], second["needed"]) == ("counted", 1, 2)
    assert second["open"] == [{"of": ["role:legal"], "quorum": 1}]
    args, ctx = {"amount": 9, "to": to}, await impostor.ctx(key)
    given = [each for each in await impostor.decisions(key) if each.verdict == "approved"]
    assert {each.subject for each in given} == {"fay", "finn"}
    forged = await impostor.take_over(key)
    claim = impostor.claim(ctx, impostor.digest(ctx, "settle", args), given, tool="settle", quorum=2)
    await forged.run("settle", args, claim)
    assert site.amounts(to) == []


async def test_one_approver_of_each_group_runs_the_call(site: AttackSite) -> None:
    to = payee()
    key = await site.person("rui").ask([("settle", {"amount": 7, "to": to})])
    approval = approval_id(key)
    for name, status in (("fay", "counted"), ("finn", "counted"), ("lea", "accepted")):
        assert (await site.person(name).approve(approval))["status"] == status
    assert (await site.person("rui").result(key))["state"] == "complete"
    assert site.amounts(to) == [7]


async def test_editor_fills_no_place_of_a_group(site: AttackSite) -> None:
    to = payee()
    key = await site.person("rui").ask([("settle", {"amount": 9, "to": to})])
    approval = approval_id(key)
    lea = site.person("lea")
    shown = await lea.waiting(approval)
    assert receipt(await lea.decide(shown, edited_args={"amount": 8, "to": to}))["status"] == "counted"
    for name in ("fay", "finn"):
        assert (await site.person(name).approve(approval))["status"] == "counted"
    refused = receipt(await lea.decide(await lea.waiting(approval)))
    assert (refused["status"], refused["code"]) == ("refused", "self_approval")
    assert site.amounts(to) == []
    assert (await site.person("lia").approve(approval))["status"] == "accepted"
    assert (await site.person("rui").result(key))["state"] == "complete"
    assert site.amounts(to) == [8]
