import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import schemathesis
from app_server import running_app
from call_rig import CallRig, call_rig
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from temporalio.client import Client

from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]

STREAM = "GET /v1/turns/{turn}/events"
"""Answered by a stream that lasts as long as its turn."""
PARTS = (
    "/v1/turns", "/v1/sessions", "/v1/calls", "/v1/approvals", "/v1/grants", "/v1/audit", "/v1/events", "/v1/tools",
    "/v1/hooks", "/access", "/aap", "/a2a", "/mcp", "/.well-known", "/healthz", "/readyz", "/v1/absences",
    "/v1/decisions", "/v1/insights", "/v1/freezes",
)  # fmt: skip
"""The address prefixes of all operations. The last one freezes tenants, which would block the others."""
EXAMPLES = 5
HOLDS = ("wait", "hold")
"""Parameters that would keep the test waiting."""
SAID_AWAY = (501, 503)
"""Statuses for a missing feature or an absent service. Each is allowed only where it is described."""
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@dataclass(frozen=True)
class DescribedApi:
    url: str
    schema: Any
    named: dict[str, str]

    def operations(self) -> dict[str, Operation]:
        found = [each.ok() for each in self.schema.get_all_operations() if isinstance(each, Ok)]
        named = {f"{each.method.upper()} {each.path}": each for each in found}
        return {name: each for name, each in named.items() if name != STREAM}

    def send(self, operation: Operation, mode: GenerationMode) -> int:
        sent = itertools.count()

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send_each(case: Any) -> None:
            self._make_answerable(case, next(sent))
            answer = case.call(base_url=self.url, timeout=60)
            # A machine that pauses makes a worker late, and the gateway reports that.
            assert answer.status_code < 500 or answer.status_code in SAID_AWAY, answer.text
            case.validate_response(answer, checks=CHECKS)

        send_each()
        return next(sent)

    def _make_answerable(self, case: Any, number: int) -> None:
        for part in (case.query, case.body):
            if isinstance(part, dict):
                part.update({held: 0 for held in HOLDS if held in part})
        # Every second request uses existing names in its address.
        if number % 2:
            case.path_parameters.update({name: self.named[name] for name in case.path_parameters if name in self.named})
        sent = {name: value for name, value in (case.headers or {}).items() if name.lower() != "authorization"}
        # Required also without a body.
        case.headers = {"Content-Type": "application/json", **sent}


@pytest.fixture(scope="module")
async def described(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DescribedApi]:
    """The requests freeze tenants and start turns."""
    folder, port = tmp_path_factory.mktemp("described"), free_port()
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        call_rig(client, store, f"described-{uuid.uuid4().hex[:12]}") as rig,
        running_app(rig.rig.app, port),
    ):
        schema = schemathesis.openapi.from_dict(rig.rig.app.openapi())
        yield DescribedApi(f"http://127.0.0.1:{port}", schema, await names_of(rig))


async def names_of(rig: CallRig) -> dict[str, str]:
    call = (await rig.propose(euro=200)).json()["id"]
    return {
        "call": call,
        "turn": call,
        "session": call.split(".")[1],
        "approval": f"{call}.c1.1",
        "tenant": "main",
        "name": call,
        "id": call,
        "agent": "coder",
        "user": "guest",
        "actor": "desk",
    }


@pytest.mark.parametrize("part", PARTS)
async def test_described_requests_get_described_answers(described: DescribedApi, part: str) -> None:
    found = {name: each for name, each in described.operations().items() if each.path.startswith(part)}
    assert found, part
    for name, operation in found.items():
        assert await asyncio.to_thread(described.send, operation, GenerationMode.POSITIVE), name
        # An operation without parameters or body has no invalid request.
        with contextlib.suppress(Unsatisfiable):
            await asyncio.to_thread(described.send, operation, GenerationMode.NEGATIVE)


async def test_every_operation_is_tried(described: DescribedApi) -> None:
    assert not [name for name, each in described.operations().items() if not each.path.startswith(PARTS)]
