import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from activity_kit import ARGS, pinned
from authzen_schemas import schema_problems
from cerbos_process import running_cerbos
from documents import ROOT, blocks
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tables import table
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities.hooks import policy_decision_point
from signoff.activities.hooks.policy_decision_point import PolicyDecisionPoint, evaluation_request, read_decision
from signoff.activities.hooks.policy_handlers import verdict_of
from signoff.channels.channel_errors import NotDelivered
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.policy.facts import ToolFacts
from signoff.policy.handler_verdict import HandlerCall
from signoff.registry.cel_context import context_mapping
from signoff.testing.vendor_server import serve_vendor

HERE = ("127.0.0.0/8",)
PATIENCE = 60.0
"""The time limit for an answer on a very slow machine."""
ASKED: list[PolicyDecisionPoint] = []
CONTEXT = context_mapping(pinned())


async def pdp(call: HandlerCall, context: dict[str, Any]) -> Any:
    return await ASKED[-1](call, context)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_decision_point, "MAX_SECONDS", 2 * PATIENCE)


def a_point(url: str, **fields: Any) -> PolicyDecisionPoint:
    return PolicyDecisionPoint(url, **{"allow_networks": HERE, "timeout": PATIENCE} | fields)


class Answers:
    def __init__(self, body: bytes | Mapping[str, Any], status: int = 200) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.asked: list[tuple[str, dict[str, str], Any]] = []

    async def evaluate(self, request: Request) -> Response:
        self.asked.append((request.url.path, dict(request.headers), await request.json()))
        if self.body == b"never":
            await asyncio.Event().wait()
        return Response(self.body, self.status, headers={"location": "/other"}, media_type="application/json")

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = Starlette(routes=[Route("/{path:path}", self.evaluate, methods=["POST"])])
        async with serve_vendor(app) as url:
            yield url


async def judged(point: PolicyDecisionPoint, **rules: Any) -> PolicyVerdict:
    ASKED.append(point)
    policy = ApprovalPolicy(handler=f"{__name__}:pdp", **rules)
    catalog = catalog_of([pay_tool(Ledger(), policy)])
    tool = catalog.registry.resolve("pay")
    assert tool is not None
    by_rules = catalog.policy("pay").judge(ARGS, CONTEXT)
    return await verdict_of(catalog, tool, ARGS, CONTEXT, by_rules, seconds=2 * PATIENCE)


@table(
    ("rules", "verdict"),
    ({"auto_approve_if": "true"}, "auto"),
    ({"require_approval_if": "true"}, "ask"),
    ({"deny_if": "true"}, "deny"),
    # Alone, a permit approves nothing: no rule approves.
    ({}, "ask"),
)
async def test_permit_of_decision_point_leaves_the_verdict_to_the_rules(rules: dict[str, str], verdict: str) -> None:
    async with Answers({"decision": True}).served() as url:
        found = await judged(a_point(url), **rules)
    assert found.verdict == verdict
    assert found.rule.handler == ""
    assert (f"handler:{__name__}:pdp" in found.evaluators) is (verdict != "deny")


@table("does", "deny", "ask")
async def test_denial_of_decision_point_denies_or_asks_as_configured(does: Any) -> None:
    answer = {"decision": False, "context": {"reason_admin": {"403": "C076"}, "reason_user": {"403": "no clearance"}}}
    async with Answers(answer).served() as url:
        found = await judged(a_point(url, on_deny=does), auto_approve_if="true")
    assert (found.verdict, found.rule.label) == (does, f"handler:{__name__}:pdp")
    assert "no clearance" in found.why


@table(
    ("body", "status"),
    (b"", 200),
    (b"[" * 50_000, 200),
    (b"[true]", 200),
    (b'{"decision": "true"}', 200),
    (b'{"decision": 1}', 200),
    (b'{"decisions": true}', 200),
    (b'{"decision": true, "context": 7}', 200),
    (b'{"decision": true, "context": {"obligations": [{"type": "step-up"}]}}', 200),
    (b'{"decision": true, "padding": "' + b"x" * 70_000 + b'"}', 200),
    (b'{"decision": true}', 201),
    (b'{"decision": true}', 307),
    (b'{"decision": true}', 401),
    (b'{"decision": true}', 500),
)
@table("does", "ask", "deny")
async def test_invalid_decision_point_response_asks_or_denies_as_configured(
    does: Any, body: bytes, status: int
) -> None:
    async with Answers(body, status).served() as url:
        point = a_point(url, on_failure=does)
        found = await judged(point, auto_approve_if="true")
    assert (found.verdict, found.rule.answer) == (does, "failed" if does == "ask" else "")


async def test_slow_decision_point_is_abandoned_after_its_timeout() -> None:
    answers = Answers(b"never")
    async with answers.served() as url:
        found = await judged(a_point(url, timeout=0.2, on_failure="deny"), auto_approve_if="true")
    assert found.verdict == "deny"
    assert "gave no answer" in found.why


async def test_decision_point_on_private_network_needs_explicit_permission() -> None:
    answers = Answers({"decision": True})
    async with answers.served() as url:
        found = await judged(a_point(url, on_failure="deny", allow_networks=()), auto_approve_if="true")
    assert (found.verdict, answers.asked) == ("deny", [])
    assert "may not be asked" in found.why


async def test_request_to_decision_point_follows_the_authzen_schema() -> None:
    answers, secrets = Answers({"decision": True}), {"PDP_TOKEN": "first-of-all-tokens\n"}
    async with answers.served() as url:
        point = a_point(url, token="env:PDP_TOKEN", secrets=SecretProvider(environment=secrets))
        await judged(point, auto_approve_if="true")
        secrets["PDP_TOKEN"] = "second-of-all-tokens"
        await judged(point, auto_approve_if="true")
    (path, first, body), (_, second, _) = answers.asked
    assert schema_problems("request", body) == []
    assert (path, first["content-type"]) == ("/access/v1/evaluation", "application/json")
    assert (first["authorization"], second["authorization"]) == (
        "Bearer first-of-all-tokens",
        "Bearer second-of-all-tokens",
    )
    assert (body["subject"]["type"], body["subject"]["id"]) == ("user", "guest")
    assert (body["resource"]["type"], body["resource"]["id"]) == ("tool", "pay")
    assert body["action"] == {"name": "tools/call", "properties": {"arguments": ARGS}}
    assert body["context"]["agent"] == body["subject"]["properties"]["act"]["sub"] == CONTEXT["actor"]


async def test_missing_decision_point_secret_asks_an_approver() -> None:
    answers = Answers({"decision": True})
    async with answers.served() as url:
        point = a_point(url, token="env:NOT_SET", secrets=SecretProvider(environment={}))
        found = await judged(point, auto_approve_if="true")
    assert (found.verdict, answers.asked) == ("ask", [])


async def test_custom_request_and_endpoint_reach_the_decision_point() -> None:
    answers = Answers({"decision": False})

    def request(call: HandlerCall, context: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "subject": {"type": "staff", "id": context["user"]["id"]},
            "action": {"name": "pay"},
            "resource": {"type": "account", "id": call.args["to"]},
        }

    def broken(call: HandlerCall, context: Mapping[str, Any]) -> Mapping[str, Any]:
        raise KeyError(call.args["to"])

    async with answers.served() as url:
        point = a_point(url, endpoint=f"{url}/v2/eval", request=request)
        assert (await judged(point, auto_approve_if="true")).verdict == "deny"
        point = a_point(url, request=broken)
        assert (await judged(point, auto_approve_if="true")).verdict == "ask"
    ((path, _, body),) = answers.asked
    assert (path, body["resource"]) == ("/v2/eval", {"type": "account", "id": "Ana"})


def test_evaluation_request_with_empty_context_is_still_valid() -> None:
    call = HandlerCall(ToolFacts("pay", "generalist", "", ("money",)), {"amount": 1.5})
    assert schema_problems("request", evaluation_request(call, {})) == []


@table(
    ("context", "reason"),
    ({}, ""),
    ({"reason": "no"}, "no"),
    ({"reason_user": {"en": "not you"}, "reason": "c1"}, "not you"),
    ({"reason_user": {"en": 7}, "reason_admin": {"403": "policy 9"}}, "policy 9"),
    ({"reason": "x" * 1_000}, "x" * 300),
)
def test_denial_reason_of_decision_point_is_read(context: dict[str, Any], reason: str) -> None:
    assert read_decision(json.dumps({"decision": False, "context": context}).encode()) == (False, reason)


def test_permit_with_obligations_is_rejected() -> None:
    with pytest.raises(NotDelivered, match="obligations"):
        read_decision(b'{"decision": true, "context": {"obligations": [{"type": "x"}]}}')


@table(
    ("fields", "named"),
    ({"url": "pdp.example.com"}, "url"),
    ({"url": "ftp://pdp.example.com"}, "url"),
    ({"url": "https://pdp.example.com:no"}, "url"),
    ({"url": "https://me@pdp.example.com"}, "url"),
    ({"token": "sk-written-out"}, "token"),
    ({"on_deny": "allow"}, "on_deny"),
    ({"on_failure": "allow"}, "on_failure"),
    ({"timeout": 2 * PATIENCE}, "timeout"),
    ({"timeout": 0}, "timeout"),
    ({"allow_networks": ["here"]}, "allow_networks"),
)
def test_invalid_decision_point_settings_fail_at_start(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        PolicyDecisionPoint(**{"url": "https://pdp.example.com"} | fields)
    assert error.value.context["field"] == named


async def test_documented_example_sends_the_documented_request(monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "authzen.md"
    module = next(block.text for block in blocks(page, "python") if block.file == "rules.py")
    documented = json.loads(blocks(page, "json")[0].text)
    monkeypatch.setenv("PDP_TOKEN", "a-token-of-the-example")
    answers, names = Answers({"decision": True}), dict[str, Any](here=HERE)
    async with answers.served() as url:
        made = module.replace("https://pdp.example.com", url).replace("token=", "allow_networks=here, token=")
        exec(compile(made, "rules.py", "exec"), names)
        found = await judged(names["pdp"], auto_approve_if="args.amount < 50")
    ((_, headers, body),) = answers.asked
    assert (found.verdict, headers["authorization"]) == ("auto", "Bearer a-token-of-the-example")
    assert {name: set(value) for name, value in body.items()} == {
        name: set(value) for name, value in documented.items()
    }
    assert schema_problems("request", documented) == []


POLICY = """\
apiVersion: api.cerbos.dev/v1
resourcePolicy:
  version: default
  resource: tool
  rules:
    - actions: ["tools/call"]
      effect: EFFECT_ALLOW
      roles: ["*"]
      condition: {match: {expr: R.id == "pay" && P.attr.act.sub == "%s"}}
"""


@pytest.mark.cerbos
async def test_real_decision_point_is_queried_and_its_outage_asks(tmp_path: Path) -> None:
    async with running_cerbos(tmp_path, POLICY % CONTEXT["actor"]) as url:
        point = a_point(url)
        assert (await judged(point, auto_approve_if="true")).verdict == "auto"

        def another(call: HandlerCall, context: Mapping[str, Any]) -> Mapping[str, Any]:
            return evaluation_request(call, {**context, "actor": "stranger"})

        stranger = a_point(url, request=another)
        assert (await judged(stranger, auto_approve_if="true")).verdict == "deny"
    found = await judged(point, auto_approve_if="true")
    assert (found.verdict, found.rule.answer) == ("ask", "failed")
