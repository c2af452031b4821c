import asyncio
import dataclasses
import json
import sys
from typing import Any

from activity_kit import environment, pinned, run, summary, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.run_handler import tool_context_of
from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.contracts.call import RunRight
from signoff.contracts.person import Principal
from signoff.people.directory import Directory, FixedDirectory
from signoff.registry.cel_context import context_fields
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.builders import a_person


def _tool(handler: Any, **fields: Any) -> Tool:
    return pay_tool(Ledger(), False, handler=handler, **fields)


async def _exits(_args: Any, _ctx: Any) -> Any:
    sys.exit(3)


async def _interrupts(_args: Any, _ctx: Any) -> Any:
    raise KeyboardInterrupt


async def _cancels_itself(_args: Any, _ctx: Any) -> Any:
    raise asyncio.CancelledError


async def _awaits_a_cancelled_task(_args: Any, _ctx: Any) -> Any:
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


@table(
    ("handler", "why"),
    (_exits, "the tool tried to end the process (SystemExit)"),
    (_interrupts, "the tool tried to end the process (KeyboardInterrupt)"),
    (_cancels_itself, "the tool cancelled itself"),
    (_awaits_a_cancelled_task, "the tool cancelled itself"),
)
@table("idempotent", True, False)
async def test_handler_that_exits_the_process_fails_only_its_call(
    store: Store, handler: Any, why: str, idempotent: bool
) -> None:
    tool = _tool(handler, idempotent=idempotent)
    deps, task = worker_deps(store, tool), task_for(tool)
    reply = await run(deps, tool, task)
    assert summary(reply) == ("execution_failed", why)
    assert await run(deps, tool, task) == reply


PEM = "-----BEGIN KEY-----\nabc\"def\\ghi'é\n-----END KEY-----"


@table(
    "quote",
    str,
    repr,
    json.dumps,
    lambda pem: json.dumps({"error": f"no such key: {pem}"}, ensure_ascii=False),
    lambda pem: json.dumps({"error": str({"key": pem})}),
    lambda pem: str(ValueError({"key": json.dumps([pem])})),
)
def test_quoted_secret_is_hidden(quote: Any) -> None:
    found = redact_secrets(f"refused {quote(PEM)}", secret_values({"key": {"pem": PEM, "id": "k1"}}, ("key.pem",)))
    assert "[hidden]" in found
    assert not [part for part in ("abc", "def", "ghi", "END") if part in found]
    assert (
        redact_secrets("k1 is unknown", secret_values({"key": {"pem": PEM, "id": "k1"}}, ("key.pem",)))
        == "k1 is unknown"
    )


async def _context(store: Store, ctx: Any, *, people: Directory | None = None, **catalog: Any) -> ToolContext:
    tool = pay_tool(Ledger())
    deps = dataclasses.replace(worker_deps(store, tool), people=people or FixedDirectory(()))
    deps = dataclasses.replace(deps, catalog=dataclasses.replace(deps.catalog, **catalog))

    async def make() -> ToolContext:
        return tool_context_of(deps, tool, task_for(tool, ctx=ctx), RunRight(), "key")

    return await environment().run(make)


@table(
    ("user", "human"),
    (Principal(user="ana2"), "ana"),
    (Principal(user="ana2", person_id="bob"), "ana"),
    (Principal(user="gone", person_id="bob"), "bob"),
    (Principal(user="ana"), "ana"),
    (Principal(user="stranger"), "stranger"),
    (Principal(user="subscription:payouts", tier=""), ""),
)
async def test_handler_receives_the_person_behind_the_account(store: Store, user: Principal, human: str) -> None:
    people = FixedDirectory(
        [
            a_person("ana", tenant="acme"),
            a_person("ana2", tenant="acme", person_id="ana"),
            a_person("eve"),
            a_person("ana2", person_id="eve"),
        ]
    )
    told = await _context(store, pinned(tenant="acme", user=user), people=people)
    assert (told.user_id, told.person_id) == (user.user, human)


async def test_handler_reads_declared_context_and_collected_data(store: Store) -> None:
    # An undeclared field, or one of another type than declared, is dropped. Collected data is separate: it is
    # dropped as a whole if it does not match its declaration.
    fields = context_fields({"project": {"type": "string"}, "floor": {"type": "integer"}})
    ctx = pinned(extra={"project": "open", "floor": "two", "other": 1, "data": {"city": "Porto"}})
    told = await _context(store, ctx, fields=fields)
    assert (told.context, told.data) == ({"project": "open"}, {"city": "Porto"})
    misfit = await _context(store, ctx, fields=context_fields({"data": {"type": "object", "required": ["street"]}}))
    assert (misfit.context, misfit.data) == ({}, {})
