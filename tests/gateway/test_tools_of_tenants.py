from gateway_rig import GatewayRig
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.registry.actor import Actor


async def test_tools_of_another_tenant_are_invisible(gateway: GatewayRig) -> None:
    ledger = Ledger()
    tools = [pay_tool(ledger, name="merge", tenants=("acme",)), pay_tool(ledger, name="pay", tenants=("main", "acme"))]
    actor = Actor(name="desk", model="scripted", shadowing="allow", own_tools=(pay_tool(ledger, name="merge"),))
    async with gateway.beside(catalog=catalog_of(tools, actors=[actor])).http as http:
        page = (await http.get("/tools")).text
        gone = [await http.get(f"/tools/{name}") for name in ("merge", "merge@desk", "marge")]
        there = await http.get("/tools/pay")
        listed = {
            tenant: [row["tool"] for row in (await http.get("/v1/tools", params={"tenant": tenant})).json()["tools"]]
            for tenant in ("main", "acme")
        }
    assert ("/tools/pay" in page, "merge" in page) == (True, False)
    assert [each.status_code for each in (*gone, there)] == [404, 404, 404, 200]
    assert "did you mean" not in gone[-1].text
    assert listed == {"main": ["pay"], "acme": ["merge", "pay", "merge@desk", "merge@desk.*"]}
