import dataclasses
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from call_rig import CallRig, call_catalog
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from gateway_rig import http_of
from tables import table
from turn_fixtures import Ledger, pay_tool
from typer import BadParameter

from signoff.activities.hooks.policy_decision_point import read_decision
from signoff.channels.channel_errors import Malformed, NotDelivered
from signoff.channels.envelopes import InboundRequest
from signoff.channels.json_body import read_object
from signoff.channels.mail.provider_requests import PostmarkFormat
from signoff.channels.slack.payloads import read_payload as read_slack
from signoff.channels.webhook import Webhook
from signoff.channels.whatsapp.whatsapp import ServiceWindow
from signoff.channels.whatsapp.whatsapp import read_payload as read_whatsapp
from signoff.cli.http import hook, mcp_stdio
from signoff.cli.terminal import inputs
from signoff.contracts.errors import ConfigError
from signoff.gateway.app import build_app, build_codec_app
from signoff.gateway.approvals.argument_form import whole_field
from signoff.gateway.approvals.argument_parser import problem_words, read_fields
from signoff.gateway.auth.dependencies import TokenReader
from signoff.gateway.auth.route_table import RouteTable
from signoff.gateway.pages.tools import _arguments
from signoff.gateway.transport.body_limit import READING
from signoff.plugins.telegram.updates import read_update
from signoff.registry.gates.call_parts import parse_arguments
from signoff.temporal.encryption import Encryption

UNREADABLE = {
    b'{"amount": 1, "amount": 2000}': "`amount` twice in one object",
    b'{"args": [{"to": {"iban": "A", "b": 1, "iban": "B"}}]}': "`iban` twice in one object",
    b'{"amount": 1, "\\u0061mount": 2000}': "`amount` twice in one object",
    b'{"amount": NaN}': "NaN",
    b'{"amount": -Infinity}': "-Infinity",
    b'{"amount": 1e999}': "holds a number",
}
PLACES = {"agent": "coder", "actor": "desk", "user": "guest"}
READ_NO_BODY = {
    "/aap/{agent}/users/{user}/v1/requests/{id}/consume",
    "/aap/{agent}/v1/requests/{id}/consume",
    "/access/v1/requests/{task}/cancel",
    "/v1/calls/{call}/use",
    "/v1/events/failed/retry",
}
"""Routes that take a `POST` and read no body. No route reads the body of a `DELETE`."""


def entrances(app: FastAPI) -> list[tuple[str, str]]:
    routes = [each for each in app.routes if isinstance(each, APIRoute) and each.include_in_schema]
    found = {(method, route.path) for route in routes for method in set(route.methods or ()) - READING - {"DELETE"}}
    return sorted(each for each in found if each[1] not in READ_NO_BODY)


@pytest.fixture
def apps(agent: CallRig, encryption: Encryption) -> list[FastAPI]:
    ledger = Ledger()
    catalog = call_catalog(ledger, pay_tool(ledger, False, name="offered", peer_exposed=True))
    deps = dataclasses.replace(agent.rig.deps, catalog=catalog)
    return [build_app(deps), build_codec_app(deps, encryption.codec("default"), [])]


@pytest.mark.parametrize("body", UNREADABLE)
async def test_every_json_route_refuses_duplicate_names_and_invalid_numbers(apps: list[FastAPI], body: bytes) -> None:
    answers = {}
    for app in apps:
        async with http_of(app) as http:
            for method, path in entrances(app):
                address = path
                for name in ("agent", "actor", "user", "approval", "call", "session", "turn", "task", "id", "grant"):
                    address = address.replace(f"{{{name}}}", PLACES.get(name, "main.s.t"))
                headers = {"content-type": "application/json", "idempotency-key": "k"}
                answers[method, path] = await http.request(method, address, content=body, headers=headers)
    refused = {where for where, each in answers.items() if each.status_code in (400, 422) or "-32700" in each.text}
    named = {where for where, each in answers.items() if UNREADABLE[body] in each.text.replace(r"\u0060", "`")}
    assert sorted(answers.keys() - (refused & named)) == []
    assert len(answers) > 15


def by_malformed(read: Callable[[InboundRequest], object]) -> Callable[[bytes], str]:
    def refuse(body: bytes) -> str:
        with pytest.raises(Malformed) as caught:
            read(InboundRequest(body=body, headers={"content-type": "application/json", "webhook-id": "m1"}))
        return caught.value.message

    return refuse


def option_refusal(body: bytes) -> str:
    with pytest.raises(BadParameter) as caught:
        inputs.read_object(body.decode(), "--args")
    return caught.value.message


def form_refusal(body: bytes) -> str:
    args = {"amount": 1}
    field = whole_field(args, ())
    return problem_words(read_fields((field,), {field.key: body.decode()}, args, None, ()))


def trial_refusal(body: bytes) -> str:
    with pytest.raises(ValueError, match="the text") as caught:
        _arguments(body.decode())
    return str(caught.value)


READERS: dict[str, Callable[[bytes], str]] = {
    "webhook channel": by_malformed(lambda raw: Webhook.parse(Webhook.__new__(Webhook), raw)),
    "slack": by_malformed(read_slack),
    "slack form": by_malformed(
        lambda raw: read_slack(
            InboundRequest(
                body=urlencode({"payload": raw.body.decode()}).encode(),
                headers={"content-type": "application/x-www-form-urlencoded"},
            )
        )
    ),
    "telegram": by_malformed(read_update),
    "whatsapp": by_malformed(lambda raw: read_whatsapp(raw, "1", ServiceWindow())),
    "postmark": by_malformed(PostmarkFormat("user", ("secret",)).mail),
    "notices of Amazon SNS": by_malformed(lambda raw: read_object(raw.body)),
    "arguments of a model": lambda body: parse_arguments(body.decode())[1],
    "option of a command": option_refusal,
    "edited arguments": form_refusal,
    "tried arguments": trial_refusal,
}


@table("body", *UNREADABLE)
@table("reader", *READERS)
def test_every_other_reader_refuses_duplicate_names_and_invalid_numbers(reader: str, body: bytes) -> None:
    assert UNREADABLE[body] in READERS[reader](body)


def test_decision_point_with_a_duplicate_name_permits_nothing() -> None:
    with pytest.raises(NotDelivered, match="no JSON"):
        read_decision(b'{"decision": false, "decision": true}')


def test_hook_event_with_a_duplicate_name_counts_as_blocking() -> None:
    assert hook._event(b'{"hook_event_name": "PreToolUse", "hook_event_name": "PostToolUse"}') == ""


def test_stdio_message_with_a_duplicate_name_is_ignored() -> None:
    assert mcp_stdio._read(b'{"method": "tools/list", "method": "tools/call"}') == {}


def test_router_whose_body_fastapi_would_read_is_refused_at_start() -> None:
    router = APIRouter()

    @router.post("/v1/plain")
    async def plain(body: dict[str, Any], caller: TokenReader) -> None: ...

    with pytest.raises(ConfigError, match="`/v1/plain` declares a body"):
        RouteTable(router.routes)
