import asyncio
import subprocess
import sys
import textwrap
from asyncio import to_thread
from pathlib import Path
from typing import Any

import pytest
from client_rig import HUGE, LARGE, SMALL, ClientRig
from polling import until
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from temporalio.activity import raise_complete_async

from signoff_client import Call, NotRun

CLIENT = Path(__file__).parents[2] / "clients" / "python"


async def run(call: Call) -> Call:
    async with call:
        if call:
            call.result = f"refunded {call.args['euro']}"
    return call


def run_blocking(call: Call) -> Call:
    with call:
        if call:
            call.result = f"refunded {call.args['euro']}"
    return call


@pytest.mark.parametrize("blocking", [False, True])
async def test_call_permitted_by_a_rule_is_run_and_reported(rig: ClientRig, blocking: bool) -> None:
    call = rig.call(SMALL, key=f"client-1-{blocking}")
    await (to_thread(run_blocking, call) if blocking else run(call))
    assert (bool(call), call.text, call.is_reported, call.is_edited) == (True, "refunded 20", True, False)
    ended = await rig.settled(call.id)
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "ok", "refunded 20")
    assert call.key == dict(await rig.agent.record(call.id))["outcome"]["ticket"]


@pytest.mark.parametrize("blocking", [False, True])
async def test_approved_call_runs_as_edited(rig: ClientRig, blocking: bool) -> None:
    call = rig.call(LARGE, key=f"client-3-{blocking}", says="charged twice")
    running = asyncio.create_task(to_thread(run_blocking, call) if blocking else run(call))
    await rig.decide(call, edited_args={"order": "A7", "euro": 150}, reason="half of it")
    await running
    assert (call.args, call.is_edited, call.status.edited_by) == ({"order": "A7", "euro": 150}, True, "Approver")
    assert call.text.startswith("refunded 150\n(Approver edited the arguments before it ran, to {")
    assert '"euro":150' in call.text.replace(" ", "")


async def test_remark_of_an_approver_follows_the_result(rig: ClientRig) -> None:
    call = rig.call(LARGE, key="client-remark")
    running = asyncio.create_task(run(call))
    await rig.decide(call, reason="thank you for checking")
    await running
    first, _, note = call.text.partition("\n")
    assert (first, call.is_edited) == (f"refunded {LARGE['euro']}", False)
    assert note == f"({call.note_text})"
    assert "thank you for checking" in note


async def test_denied_call_is_not_run(rig: ClientRig) -> None:
    call = rig.call(LARGE, key="client-4")
    running = asyncio.create_task(run(call))
    await rig.decide(call, verdict="denied", reason="not twice")
    await running
    assert (bool(call), call.state, call.text) == (False, "denied", "Not run: it was denied by approver: not twice")
    with pytest.raises(NotRun, match="not twice"):
        _ = call.args
    with pytest.raises(NotRun):
        call.result = "refunded"


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        ("refund", HUGE, "Not run: a rule denies it: `deny_if` is true"),
        ("reefund", SMALL, "Not run: a rule denies it: Unknown tool"),
        ("refund", {"order": "A7"}, "euro"),
        ("brief", LARGE, "Not run: nobody answered in time"),
        ("refund", {"order": "A7", "euro": float("nan")}, "Not run: Signoff does not take it: its arguments cannot be"),
        ("refund", {"order": "\ud800", "euro": 1}, "Not run: Signoff does not take it: its arguments cannot be"),
        ("refund", {"order": "y" * 70_000, "euro": 1}, "Not run: Signoff does not take it: `args` are larger"),
    ],
)
async def test_refusal_is_a_text_for_the_model(rig: ClientRig, tool: str, args: dict[str, Any], words: str) -> None:
    call = await run(rig.call(args, tool))
    assert not call
    assert words in call.text


async def test_call_run_by_signoff_is_not_run_locally(rig: ClientRig) -> None:
    call = await run(rig.call({"amount": 20}, "pay", key="client-6"))
    assert (bool(call), call.state, call.text, call.result) == (False, "ended", "paid", "paid")
    assert not call.is_reported


async def test_repeated_key_runs_nothing(rig: ClientRig) -> None:
    call = rig.call(SMALL, key="client-7")
    async with call:
        again = await run(rig.call(SMALL, key="client-7"))
        call.result = "refunded once"
    assert (bool(again), again.state) == (False, "used")
    later = await run(rig.call(SMALL, key="client-7"))
    assert (bool(later), later.text) == (False, "refunded once")


async def test_one_of_twenty_calls_with_one_key_runs(rig: ClientRig) -> None:
    calls = await asyncio.gather(*(run(rig.gate(patience=60).call("refund", SMALL, key="client-8")) for _ in range(20)))
    assert sum(map(bool, calls)) == 1


async def test_equal_calls_without_a_key_are_one_until_used(rig: ClientRig) -> None:
    args = {"order": "without-a-key", "euro": 200}
    first, again = (rig.call(args, key=None, wait=0) for _ in range(2))
    await first.settle()
    await again.settle()
    assert first.id == again.id
    await rig.decide(first)
    await run(rig.call(args, key=None))
    later = rig.call(args, key=None, wait=0)
    await later.settle()
    assert (later.id != first.id, later.state) == (True, "waiting")


async def test_key_may_be_any_text(rig: ClientRig) -> None:
    first = await run(rig.call(SMALL, key="rückzahlung " * 30))
    again = await run(rig.call(SMALL, key="rückzahlung " * 30))
    assert (bool(first), bool(again), first.id) == (True, False, again.id)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ValueError("the bank is closed"), "execution_failed", "It failed: ValueError: the bank is closed"),
        (TimeoutError(), "in_doubt", "It may have happened or not: TimeoutError"),
        (KeyboardInterrupt(), "in_doubt", "It may have happened or not: KeyboardInterrupt"),
    ],
)
async def test_error_in_the_block_is_reported_and_raised(
    rig: ClientRig, error: BaseException, code: str, words: str
) -> None:
    call = rig.call(SMALL)

    def fail() -> None:
        with pytest.raises(type(error)), call:
            raise error

    await to_thread(fail)
    assert call.text == words
    assert (await rig.settled(call.id))["code"] == code


async def test_block_without_a_result_is_in_doubt(rig: ClientRig) -> None:
    async with rig.call(SMALL) as call:
        assert call
    assert call.text == "It may have happened or not: its block ended without a result"
    assert (await rig.settled(call.id))["code"] == "in_doubt"
    with pytest.raises(RuntimeError, match="inside the block"):
        call.result = "too late"
    with pytest.raises(RuntimeError, match="entered only once"):
        await run(call)


async def test_failure_without_an_exception_is_reported(rig: ClientRig) -> None:
    async with rig.call(SMALL) as call:
        call.result = "Error: closed"
        call.fail("closed")
    assert (call.text, (await rig.settled(call.id))["code"]) == ("It failed: closed", "execution_failed")


async def test_task_cancelled_in_its_block_reports_in_doubt(rig: ClientRig) -> None:
    call, entered = rig.call(SMALL), asyncio.Event()

    async def hang() -> None:
        async with call:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: call.is_reported)
    assert (await rig.settled(call.id))["code"] == "in_doubt"


@pytest.mark.parametrize("withdraw", [False, True])
async def test_task_cancelled_while_waiting_runs_nothing(rig: ClientRig, withdraw: bool) -> None:
    key = f"client-9-{withdraw}"
    call = rig.call(LARGE, key=key, withdraw=withdraw)
    task = asyncio.create_task(run(call))
    await until(lambda: bool(call.id))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await rig.show(call.id))["state"] == ("denied" if withdraw else "waiting")
    again = rig.call(LARGE, key=key)
    if not withdraw:
        await rig.decide(call)
    await run(again)
    assert (bool(again), again.id) == (not withdraw, call.id)


async def test_call_without_a_wait_reports_its_open_request(rig: ClientRig) -> None:
    first = await run(rig.call(LARGE, key="client-10", wait=0))
    assert (bool(first), first.state) == (False, "waiting")
    assert first.status.code in first.text
    await rig.decide(first)
    again = rig.call(LARGE, key="client-10", wait=0)
    await again.settle()
    assert (again.state, bool(again)) == ("permitted", False)
    await run(again)
    assert (bool(again), again.text) == (True, "refunded 200")
    other = await run(rig.call(LARGE, key="client-11", wait=0))
    assert await other.withdraw()
    assert (await rig.show(other.id))["source"] == "cancelled"
    assert not await first.withdraw()


async def test_process_killed_in_its_block_leaves_the_call_in_doubt(rig: ClientRig) -> None:
    program = f"""
        import os
        from signoff_client import Gate
        with Gate({rig.url!r}, {rig.token!r}).call("quick", {SMALL!r}, key="client-12") as call:
            print(call.id, flush=True)
            os._exit(9)
    """
    command = (sys.executable, "-c", textwrap.dedent(program))
    done = await to_thread(subprocess.run, command, cwd=CLIENT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert (await rig.settled(done.stdout.strip()))["code"] == "in_doubt"
    again = await run(rig.call(SMALL, "quick", key="client-12"))
    assert (bool(again), again.text.startswith("It may have happened or not")) == (False, True)


async def test_refused_token_runs_nothing(rig: ClientRig) -> None:
    rig_of_none = ClientRig(rig.agent, rig.app, "signoff_nobody", rig.url)
    refused = await run(rig_of_none.gate(patience=60).call("refund", SMALL))
    assert (bool(refused), refused.state) == (False, "refused")
    foreign = await run(rig.call(SMALL, user="bo"))
    assert "may not act for `bo`" in foreign.text
    conflict = [await run(rig.call(args, key="client-13")) for args in (SMALL, {**SMALL, "euro": 21})]
    assert [each.state for each in conflict] == ["permitted", "refused"]


@pytest.mark.parametrize("blocking", [False, True])
async def test_unreachable_gateway_runs_nothing(rig: ClientRig, blocking: bool) -> None:
    async with rig.serve() as url:
        waiting = rig.gate(url).call("refund", LARGE, key=f"client-14-{blocking}")
        task = asyncio.create_task(to_thread(run_blocking, waiting) if blocking else run(waiting))
        await until(lambda: bool(waiting.id))
    await task
    assert (bool(waiting), waiting.state) == (False, "unreachable")
    gone = rig.gate(url).call("refund", SMALL)
    await (to_thread(run_blocking, gone) if blocking else run(gone))
    assert (bool(gone), gone.text) == (False, "Not run: Signoff gave no answer (no gateway answers at its address).")


async def test_gateway_that_returns_is_found_again(rig: ClientRig) -> None:
    async with rig.serve() as url:
        call = rig.gate(url, patience=100).call("refund", LARGE, key="client-15")
        task = asyncio.create_task(run(call))
        await until(lambda: bool(call.id))
    await rig.decide(call)
    async with rig.serve(port=int(url.rpartition(":")[2])):
        await task
    assert (bool(call), call.text) == (True, "refunded 200")


async def test_unavailable_gateway_at_the_end_of_the_block_raises_nothing(rig: ClientRig) -> None:
    async with rig.serve() as url:
        call = rig.gate(url).call("quick", SMALL, key="client-16")
        await call.__aenter__()
    call.result = "refunded"
    await call.__aexit__(None, None, None)
    assert (call.text, call.is_reported) == ("refunded", False)
    assert (await rig.settled(call.id))["code"] == "in_doubt"


class LostAnswers:
    def __init__(self, app: Any) -> None:
        self._app = app
        self.lost: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = f"{scope['method']} {scope['path'].rpartition('/')[2]}"
        kind = "GET" if kind.startswith("GET") else kind
        if kind in self.lost:
            await self._app(scope, receive, send)
            return
        self.lost.append(kind)

        async def swallow(message: Any) -> None:
            """Drop the answer."""

        await self._app(scope, receive, swallow)
        headers = [(b"retry-after", b"0")]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def test_lost_answer_is_requested_again(rig: ClientRig) -> None:
    proxy = LostAnswers(rig.app)
    async with rig.serve(proxy) as url:
        call = rig.gate(url, patience=100).call("refund", LARGE, key="client-17")
        task = asyncio.create_task(run(call))
        await rig.decide(call)
        await task
    assert proxy.lost == ["POST calls", "GET", "POST use", "POST outcome"]
    assert (bool(call), call.is_reported) == (True, True)
    kinds = [kind for kind, _ in await rig.agent.record(call.id)]
    assert (kinds.count("execution"), kinds.count("outcome")) == (1, 1)


async def test_non_json_result_is_reported_as_text(rig: ClientRig) -> None:
    for result, told in ((Path("a"), "PosixPath('a')"), (2**60, str(2**60)), ("ä" * 50_000, "... (cut)")):
        async with rig.call(SMALL) as call:
            call.result = result
        assert (call.result, call.is_reported) == (result, True)
        assert str((await rig.show(call.id))["result"]).endswith(told)


async def test_call_is_found_by_its_id(rig: ClientRig) -> None:
    proposed = rig.call(LARGE, wait=0)
    await proposed.settle()
    await rig.decide(proposed, edited_args={"order": "A7", "euro": 150})
    found = await run(rig.gate().find(proposed.id))
    assert (found.tool, found.text.partition("\n")[0], found.is_edited) == ("refund", "refunded 150", True)
    assert (await rig.show(proposed.id))["result"] == "refunded 150"
    again = await run(rig.gate().find(proposed.id))
    assert (bool(again), again.text) == (False, "refunded 150")
    for nobody in ("main.s.t", "../../v1/turns", ""):
        assert (await run(rig.gate().find(nobody))).state == "refused"


async def test_named_attempt_gets_its_permit_again(rig: ClientRig) -> None:
    proposed = rig.call(SMALL, wait=0)
    await proposed.settle()
    lost = rig.gate().find(proposed.id, attempt="the-workflow-itself")
    await lost.__aenter__()
    assert not await run(rig.gate().find(proposed.id, attempt="another-try"))
    again = await run(rig.gate().find(proposed.id, attempt="the-workflow-itself"))
    assert (bool(again), again.is_reported, again.args) == (True, True, SMALL)


def framework_error(module: str, name: str, base: type[BaseException] = Exception) -> BaseException:
    """The framework is not installed here. The client knows it only by name."""
    return type(name, (base,), {"__module__": module})()


def complete_async() -> BaseException:
    try:
        raise_complete_async()
    except BaseException as error:
        return error


INTERRUPT = type("GraphBubbleUp", (Exception,), {"__module__": "langgraph.errors"})


@pytest.mark.parametrize(
    "signal",
    [
        framework_error("langgraph.errors", "GraphInterrupt", INTERRUPT),
        framework_error("strands.interrupt", "InterruptException"),
        ApprovalRequired(),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_interrupted_call_reports_nothing_and_resumes_with_its_permit(
    rig: ClientRig, signal: BaseException, blocking: bool
) -> None:
    gate, key = rig.gate(), f"interrupted-{type(signal).__name__}-{blocking}"
    call = gate.call("refund", LARGE, key=key)

    def interrupt() -> None:
        with call:
            raise signal

    async def interrupt_async() -> None:
        async with call:
            raise signal

    interrupting = asyncio.create_task(to_thread(interrupt) if blocking else interrupt_async())
    await rig.decide(call, edited_args={"order": "A7", "euro": 150})
    with pytest.raises(type(signal)) as raised:
        await interrupting
    assert raised.value is signal
    assert (await rig.show(call.id))["state"] == "used"
    # One of two concurrent resumptions runs it as approved.
    resumed = await asyncio.gather(*(run(gate.call("refund", LARGE, key=key)) for _ in range(2)))
    assert sorted(bool(each) for each in resumed) == [False, True]
    assert (await rig.settled(call.id))["result"] == "refunded 150"


@pytest.mark.parametrize("signal", [CallDeferred(), complete_async()], ids=lambda each: type(each).__name__)
async def test_call_completed_elsewhere_is_neither_reported_nor_run_again(
    rig: ClientRig, signal: BaseException
) -> None:
    gate, key = rig.gate(), f"elsewhere-{type(signal).__name__}"
    call = gate.call("refund", SMALL, key=key)
    with pytest.raises(type(signal)):
        async with call:
            raise signal
    assert (await rig.show(call.id))["state"] == "used"
    assert not await run(gate.call("refund", SMALL, key=key))


@pytest.mark.parametrize("key", ["wait-over", None])
async def test_expired_wait_denies_nothing_and_suggests_a_change(
    rig: ClientRig, caplog: pytest.LogCaptureFixture, key: str | None
) -> None:
    call = await run(rig.call({"order": "A7", "euro": 333}, key=key, wait=0.1))
    again = "Do not make the same call again" if key else "Make the same call again later"
    assert call.text.startswith(
        f"Not run: it waits for a person's approval ({call.status.code}). The request stays open."
    )
    assert again in call.text
    assert [each for each in caplog.messages if call.status.code in each and "leave `wait` out" in each]
    await rig.decide(call)
    assert (await rig.show(call.id))["state"] == "permitted"
    assert await call.withdraw()
