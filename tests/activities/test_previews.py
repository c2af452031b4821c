import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from activity_kit import ARGS, about, asked, environment, pinned, run, task_for, worker_deps
from some import some
from turn_fixtures import ApprovalPolicy, Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks import previews
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.machine import objection
from signoff.contracts.activity_messages import GateDecision, GateTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.preview import Diff, Text
from signoff.registry.hooks import PREVIEW, HookContext
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.content_store import load
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.questions import answer


class Account:
    def __init__(self) -> None:
        self.balance = 70
        self.previews = 0
        self.fails: Callable[[], Any] | None = None
        self.seen: dict[str, Any] = {}

    async def preview(self, args: dict[str, Any], context: HookContext) -> Any:
        self.previews += 1
        if self.fails is not None:
            return self.fails()
        args["amount"] = 0
        after = f"{self.balance - ARGS['amount']}"
        return [Diff(name="balance", before=f"{self.balance}", after=after), Text(text=f"for {args['to']}")]

    async def pay(self, args: dict[str, Any], context: ToolContext) -> str:
        self.seen = dict(context.previewed)
        self.balance -= args["amount"]
        return "paid"


@pytest.fixture
def account() -> Account:
    return Account()


def tool_of(account: Account, policy: ApprovalPolicy | bool = True, **fields: Any) -> Tool:
    given = {"preview": account.preview, "binds": ("balance",), "handler": account.pay}
    return pay_tool(Ledger(), policy, **given | fields)


async def gated(deps: WorkerDeps, args: Any = ARGS, *calls: CallPart) -> list[GateDecision]:
    part = CallPart(call="c1.1", tool="pay", args=Content(inline=args))
    task = GateTask(ctx=pinned(), calls=calls or (part,))
    reply = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, task)
    return list(reply.gate_decisions)


async def request_of(deps: WorkerDeps, args: Any = ARGS) -> ApprovalRequest:
    return some((await gated(deps, args))[0].request)


async def stored_parts(store: Store, approval: str) -> Any:
    """Requests, which many read, lack the parts."""
    question = some(await Questions(store).read(approval)).latest
    return await load(store, some(some(question.preview).parts))


async def test_question_holds_the_stored_parts_and_their_hash(store: Store, account: Account) -> None:
    deps = worker_deps(store, tool_of(account))
    request = await request_of(deps)
    preview = some(request.preview)
    parts = await stored_parts(store, request.id)
    assert [(each["kind"], each["name"]) for each in parts] == [("diff", "balance"), ("text", "")]
    assert (parts[0]["before"], parts[0]["after"], parts[1]["text"]) == ("70", "50", "for Ana")
    assert (len(preview.sha256), len(preview.bound), preview.fault) == (64, 64, "")
    assert request.args.inline == ARGS


async def test_changed_preview_changes_the_question_hash(store: Store, account: Account) -> None:
    tool = tool_of(account)
    first = await request_of(worker_deps(store, tool))
    account.balance = 30
    other = await asked(worker_deps(store, tool), tool, call="c1.2")
    assert first.question_hash != other.question_hash


async def test_call_that_no_approver_is_asked_about_has_no_preview(store: Store, account: Account) -> None:
    assert (await gated(worker_deps(store, tool_of(account, policy=False))))[0].kind == "run"
    denied = ApprovalPolicy(deny_if="args.amount > 1")
    assert (await gated(worker_deps(store, tool_of(account, denied))))[0].kind == "settled"
    assert account.previews == 0


def raises() -> None:
    raise RuntimeError("the secret 4711")


async def hang() -> None:
    await asyncio.Event().wait()


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (raises, "failed"),
    "another type": (lambda: "50", "invalid"),
    "without the bound part": (lambda: Text(text="a"), "invalid"),
    "too large": (lambda: [Text(name="balance", text="x" * 10_000_000)], "too_large"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_failed_preview_is_a_fault_of_the_question(
    name: str, store: Store, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.fails, fault = FAULTS[name]
    preview = some((await request_of(worker_deps(store, tool_of(account)))).preview)
    assert (preview.parts, preview.sha256, preview.fault) == (None, "", fault)
    assert "4711" not in caplog.text


async def test_slow_previews_of_a_batch_end_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(args: dict[str, Any], context: HookContext) -> Any:
        await hang()

    monkeypatch.setattr(previews, "PREVIEW", dataclasses.replace(PREVIEW, seconds=0.2))
    tool = pay_tool(Ledger(), True, preview=slow)
    calls = [CallPart(call=f"c1.{n}", tool="pay", args=Content(inline=ARGS | {"amount": n})) for n in range(1, 21)]
    async with asyncio.timeout(20):
        found = await gated(worker_deps(store, tool), ARGS, *calls)
    assert {some(some(each.request).preview).fault for each in found} == {"slow"}


async def test_secret_argument_is_masked_in_the_stored_preview(store: Store, account: Account) -> None:
    deps = worker_deps(store, tool_of(account, secrets=("to",), effect="Pay {amount}"))
    request = await request_of(deps)
    parts = await stored_parts(store, request.id)
    assert parts[1]["text"] == "for [hidden]"


@pytest.mark.parametrize("has_preview", [True, False])
async def test_required_preview_refuses_an_approval_without_one(
    has_preview: bool, store: Store, account: Account
) -> None:
    account.fails = None if has_preview else raises
    request = await request_of(worker_deps(store, tool_of(account, ApprovalPolicy(preview_required=True))))
    refused = objection(request, about(request), some(request.opened_at))
    assert (refused is None) is has_preview
    assert refused is None or (refused.code, refused.why) == ("not_allowed", "preview")
    assert objection(request, about(request, verdict="denied"), some(request.opened_at)) is None


async def test_call_with_unchanged_bound_parts_runs_and_reads_them(store: Store, account: Account) -> None:
    tool = tool_of(account)
    deps = worker_deps(store, tool)
    request = await request_of(deps)
    await answer(store, about(request))
    reply = await run(deps, tool, task_for(tool, revision=1))
    assert some(reply.outcome).code == "ok"
    assert account.seen == {"balance": Diff(name="balance", before="70", after="50")}


async def test_changed_bound_part_lapses_the_approval_and_the_third_ends_the_call(
    store: Store, account: Account
) -> None:
    tool = tool_of(account)
    deps = worker_deps(store, tool)
    replies = []
    for revision in (1, 2, 3):
        request = await asked(deps, tool)
        assert request.revision == revision
        await answer(store, about(request))
        account.balance -= 1
        replies.append(await run(deps, tool, task_for(tool, revision=revision)))
    assert [each.again for each in replies] == ["policy", "policy", ""]
    assert some(replies[-1].outcome).code == "refused"
    assert "changed 3 times" in str(some(replies[-1].outcome).value)
    assert account.seen == {}


async def test_preview_that_fails_at_the_run_lapses_the_approval(store: Store, account: Account) -> None:
    tool = tool_of(account)
    deps = worker_deps(store, tool)
    await answer(store, about(await request_of(deps)))
    account.fails = raises
    assert (await run(deps, tool, task_for(tool, revision=1))).again == "policy"
    assert account.seen == {}


async def test_approval_without_a_preview_lapses_if_the_policy_now_requires_one(store: Store, account: Account) -> None:
    plain = pay_tool(Ledger(), True)
    await answer(store, about(await request_of(worker_deps(store, plain))))
    strict = pay_tool(Ledger(), ApprovalPolicy(preview_required=True))
    assert (await run(worker_deps(store, strict), strict, task_for(strict, revision=1))).again == "policy"
