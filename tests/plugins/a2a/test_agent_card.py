import dataclasses
import json
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.client.errors import AgentCardResolutionError
from a2a.types.a2a_pb2 import AgentCard
from google.protobuf.json_format import ParseDict
from peer_rig import MONEY, OUTPUT, SCHEMA, PeerRig, peer_catalog
from tables import table
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.gateway.peer_turns import exposed_of
from signoff.plugins.a2a.agent_card import CARD_PATH, PART, TOOLS, AgentCards, consumed_types
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import Actor, ExternalAgent, Surface
from signoff.registry.catalog import Catalog

URL = "https://signoff.example.com"


def card_of(catalog: Catalog, actor: str = "") -> dict[str, Any]:
    """A2A's own parser accepts it without unknown fields."""
    card = AgentCards(exposed_of(catalog), URL).card(actor)
    assert card is not None
    found: dict[str, Any] = json.loads(card.body)
    ParseDict(found, AgentCard())
    return found


async def test_protocols_own_client_finds_the_card(peers: PeerRig) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, peers.url).get_agent_card()
        assert card == await A2ACardResolver(http, f"{peers.url}/a2a/desk").get_agent_card()
        for nobody in ("other", "nobody"):
            with pytest.raises(AgentCardResolutionError):
                await A2ACardResolver(http, f"{peers.url}/a2a/{nobody}").get_agent_card()
    assert (card.name, card.description) == ("desk", "Pays and books.")
    assert card.supported_interfaces[0].url == f"{peers.url}/a2a/desk"
    assert (card.supported_interfaces[0].protocol_binding, card.supported_interfaces[0].protocol_version) == (
        "JSONRPC",
        "1.0",
    )
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, False)
    assert card.security_schemes["token"].http_auth_security_scheme.scheme == "Bearer"


@pytest.mark.row("B79")
def test_card_entry_has_id_description_examples_schemas_and_approval() -> None:
    card = card_of(peer_catalog(Ledger()))
    pay = card["skills"][0]
    assert pay == {
        "id": "pay",
        "name": "Pay",
        "description": "Pay somebody",
        "tags": ["money"],
        "examples": [json.dumps(MONEY)],
    }
    tools, *parts = card["capabilities"]["extensions"]
    assert tools["uri"] == TOOLS
    assert tools["params"]["tools"]["pay"]["outputSchema"] == OUTPUT
    shown = tools["params"]["tools"]["pay"]["inputSchema"]
    assert {name: shown[name] for name in ("type", "required", "examples")} == {
        name: SCHEMA[name] for name in ("type", "required", "examples")
    }
    approvals = {name: each["approval"] for name, each in tools["params"]["tools"].items()}
    assert approvals == {"pay": "always", "refund": "always", "small": "maybe"}
    envelope = tools["params"]["envelope"]
    assert "chart" in envelope["parts"]
    assert not {"approval-request", "approval-response"} & set(envelope["parts"])
    assert envelope["consumes"] == ["text", "data"]
    assert {each["uri"] for each in parts} == {
        PART + each for each in ("chart", "llm-context", "thinking", "reasoning-trace")
    }


@pytest.mark.row("V06")
def test_unexposed_tools_are_in_no_card() -> None:
    fields: dict[str, dict[str, Any]] = {
        "plain": {"peer_exposed": False},
        "shown": {},
        "kept": {},
        "secret": {"tags": ("ice",)},
        "theirs": {"tenants": ("main",)},
        "elsewhere": {},
    }
    tools = [pay_tool(Ledger(), name=name, **{"peer_exposed": True, **more}) for name, more in fields.items()]
    actors = [
        Actor(name="first", model="scripted", tools=("plain",)),
        Actor(
            name="second",
            model="scripted",
            tools=("plain", "shown", "kept", "secret", "theirs"),
            surfaces={"peer": Surface(exclude=("kept",))},
        ),
        Actor(name="third", model="scripted", tools=("elsewhere",)),
    ]
    rules = [GlobalRule(name="ice", rule="'ice' in tool.tags", effect="hide")]
    catalog = catalog_of(tools, actors=actors, policies=rules)
    assert [each["id"] for each in card_of(catalog, "second")["skills"]] == ["shown"]
    assert [each["id"] for each in card_of(catalog, "third")["skills"]] == ["elsewhere"]
    # The first actor that exposes a tool answers at the well-known address.
    assert card_of(catalog)["name"] == "second"
    assert AgentCards(exposed_of(catalog), URL).card("first") is None
    assert AgentCards(exposed_of(catalog_of(tools[:1], actors=actors[:1])), URL).card() is None


def test_external_agent_has_no_card() -> None:
    tools = [pay_tool(Ledger(), name="shown", peer_exposed=True)]
    elsewhere = Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))
    catalog = catalog_of(tools, actors=[elsewhere, Actor(name="desk", model="scripted")])
    assert card_of(catalog)["name"] == "desk"
    assert AgentCards(exposed_of(catalog), URL).card("coder") is None


@pytest.mark.row("B79")
async def test_card_is_cached_for_an_hour_and_revalidated_by_its_tag(peers: PeerRig) -> None:
    async with httpx.AsyncClient(base_url=peers.url, timeout=60) as http:
        first = await http.get(CARD_PATH)
        assert first.headers["cache-control"] == "public, max-age=3600"
        tag = first.headers["etag"]
        again = await http.get(CARD_PATH, headers={"if-none-match": f'"other", W/{tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert (await http.get(CARD_PATH, headers={"if-none-match": '"other"'})).status_code == 200
    catalog = peer_catalog(Ledger())
    card, same = (AgentCards(exposed_of(catalog), URL).card() for _ in range(2))
    assert card == same
    other = AgentCards(exposed_of(dataclasses.replace(catalog, hash="0" * 64)), URL).card()
    assert card is not None
    assert other is not None
    assert card.etag != other.etag


@table(
    ("header", "types"),
    ("", set()),
    (f"{PART}chart", {"chart"}),
    (f"https://example.com/x , {PART}chart,{PART}llm-context", {"chart", "llm-context"}),
    ("urn:signoff:a2a:tools:1", set()),
)
def test_peer_lists_accepted_part_types_by_extensions(header: str, types: set[str]) -> None:
    assert consumed_types(header) == types
