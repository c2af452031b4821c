from pathlib import Path

import pytest
from attack_site import approval_id, receipt
from changed_site import changed_site

from signoff.temporal.embedded_server import ServerHandle

pytestmark = pytest.mark.timeout(180)
MORE = """
  unlock:
    handler: attack_project_tools:pay
    scope: generalist
    effect: "Unlock {amount} doors"
    secrets: [to]
    requires_approval: {approvers: ["role:approvers"], quorum: 2, allow_remember: true}
  unlock_alone:
    handler: attack_project_tools:pay
    scope: generalist
    effect: "Unlock {amount} doors"
    requires_approval: {approvers: ["role:approvers"], min_assurance: mfa, allow_remember: true, show: {secret: [to]}}
"""
SECRET = "hunter2"
GUESSES = (
    "args.to.startsWith('{}')",
    "dyn(args)['to'].startsWith('{}')",
    "[args].exists(each, each.to.startsWith('{}'))",
    "[{{'to': '{0}'}}].exists(args, .args.to.startsWith('{0}'))",
)


async def test_remembered_predicate_reveals_no_secret_value(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # Ana guesses in four ways how a secret begins, after her own approval and with a sign-in too weak to decide. Every
    # guess gets the same reply: the value is hidden. Visible values may be used. With nothing refused by
    # `compile_where` for hidden values, a right guess got `duplicate` or `assurance` and a wrong one `malformed`: 151
    # attempts revealed it. So did the fourth way with names after a point accepted, which the first engine reads past
    # a macro's variable.
    async with changed_site(attacked_server, tmp_path, MORE) as (site, _, _):
        rui, ana = site.person("rui"), site.person("ana")
        for tool, hidden_code, shown_code in (
            ("unlock", "malformed", "duplicate"),
            ("unlock_alone", "assurance", "assurance"),
        ):
            key = await rui.ask([(tool, {"amount": 3, "to": SECRET})])
            shown = await ana.waiting(approval_id(key))
            assert SECRET not in shown.words
            if tool == "unlock":
                await ana.decide(shown)
            found = {}
            for where in (guess.format(begins) for guess in GUESSES for begins in ("h", "x")):
                wish = {"scope": "tenant", "where": where, "uses": 1}
                found[where] = receipt(await ana.decide(shown, remember=wish))
            assert {each["code"] for each in found.values()} == {hidden_code}
            # The same text for a right and a wrong guess, apart from the guess itself.
            for guess in GUESSES:
                right, wrong = guess.format("h"), guess.format("x")
                assert found[right]["message"].replace(right, "") == found[wrong]["message"].replace(wrong, "")
            wish = {"scope": "tenant", "where": "args.amount == 3", "uses": 1}
            assert receipt(await ana.decide(shown, remember=wish))["code"] == shown_code
            assert (await ana.see(approval_id(key))).view["state"] == "pending"
