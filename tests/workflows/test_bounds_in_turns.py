import pytest
from turn_fixtures import Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.contracts.person import Person
from signoff.people.directory import DevelopmentDirectory, FixedDirectory
from signoff.registry.actor import Actor, Autonomy, EscalationPath
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PEOPLE = (Person(id="guest"), Person(id="lea", roles=("leads",)), a_person("ana"))


@pytest.mark.row("P19")
async def test_calls_beyond_autonomy_ask_the_escalation_approvers(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    actor = Actor(
        name="desk",
        model="scripted",
        autonomy=Autonomy(unasked_if="'read' in tool.tags"),
        escalation=EscalationPath(approvers=("role:leads",)),
    )
    tools = [pay_tool(ledger, False), pay_tool(ledger, False, name="look", tags=("read",))]
    catalog = catalog_of(tools, actors=[actor], people=PEOPLE)
    script = [calls(("look", {"amount": 1}), ("pay", {"amount": 20})), respond("done")]
    people = DevelopmentDirectory(FixedDirectory(PEOPLE))
    async with turn_rig.running(catalog, script, people=people) as turns:
        key = await turns.start_waiting()
        assert (await turns.signoff.decide(yes(key, "c1.2", subject="ana"))).code == "not_allowed"
        result = await turns.result_after(yes(key, "c1.2", subject="lea"))
    assert [call.code for call in result.calls] == ["ok", "ok"]
    assert len(ledger.rows) == 2
