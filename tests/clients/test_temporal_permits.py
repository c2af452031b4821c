import asyncio
import dataclasses
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from gated_workflows import Asks, Impatient, Parent, Refunds, Renewed, Stubborn, Twice, refund
from temporal_rig import NEVER, Workers, asked_call, order, ran, until, until_asked
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import ActivityFailureError, Client, WorkflowHandle
from temporalio.converter import DataConverter, PayloadCodec, PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from turn_reset import reset_workflow

from signoff.temporal.embedded_server import free_port
from signoff_client.temporal import Gated
from signoff_client.temporal.messages import HEADER, SIGNAL, Use

IN_DOUBT: Final = "ToolInDoubt: "


async def permits(handle: WorkflowHandle[Any, Any]) -> list[Use]:
    found = []
    async for event in handle.fetch_history_events():
        fields = event.activity_task_scheduled_event_attributes.header.fields
        if HEADER in fields:
            found.append(PayloadConverter.default.from_payload(fields[HEADER], Use))
    return found


async def until_permitted(handle: WorkflowHandle[Any, Any]) -> Use:
    async def has_permit() -> bool:
        return bool(await permits(handle))

    await until(has_permit)
    return (await permits(handle))[-1]


async def test_revoked_grant_before_the_start_asks_again(workers: Workers) -> None:
    http, name, queue = workers.rig.agent.http, order(), f"gated-{uuid.uuid4().hex}"
    first = workers.rig.call({"order": name, "euro": 1}, "alike", wait=0)
    await first.settle()
    remember = {"scope": "tenant", "where": f"args.order == '{name}'", "seconds": 86_400, "uses": 9}
    await workers.rig.decide(first, remember=remember)
    gated = Gated(workers.rig.gate(), {refund: "alike"}, look_up=NEVER)
    async with workers.work(gated) as own:
        handle = await workers.start(own, Refunds.run, [(name, 200.0)], "refund", queue)
        await until_permitted(handle)
        granted = (await http.get("/v1/grants")).json()["grants"]
        [grant] = [each for each in granted if name in each["like"]["where"]]
        gone = await http.request("DELETE", f"/v1/grants/{grant['id']}", json={})
        assert gone.status_code == 200, gone.text
        assert ran(name) == []
        async with workers.work(gated, queue=queue):
            await until_asked(handle)
            call = await asked_call(workers.rig, handle, workers.client)
            assert ran(name) == []
            await workers.rig.decide(call)
            assert await handle.result() == [f"refunded 200 EUR for {name}"]
    assert ran(name) == [200]


@pytest.mark.parametrize("why", ["lapsed", "withdrawn"])
async def test_permit_that_ended_before_the_start_runs_nothing(workers: Workers, why: str) -> None:
    name, queue = order(), f"gated-{uuid.uuid4().hex}"
    gated = Gated(workers.rig.gate(), {refund: "fleeting" if why == "lapsed" else "refund"}, look_up=NEVER)
    async with workers.work(gated) as own:
        handle = await workers.start(own, Refunds.run, [(name, 20.0)], "refund", queue)
        use = await until_permitted(handle)
        if why == "withdrawn":
            assert await workers.rig.gate().find(use.id).withdraw()
        await workers.rig.settled(use.id)
        async with workers.work(gated, queue=queue):
            [told] = await handle.result()
    assert told.startswith("ToolDenied: Not run: ")
    assert ran(name) == []


async def test_another_queue_asks_if_the_workflows_own_cannot(workers: Workers) -> None:
    name, queue = order(), f"gated-{uuid.uuid4().hex}"
    cut_off = workers.gated(f"http://127.0.0.1:{free_port()}", task_queue=queue)
    async with workers.work(cut_off) as own, workers.work(workers.gated(), queue=queue):
        handle = await workers.start(own, Refunds.run, [(name, 20.0)], "refund", queue)
        assert await handle.result() == [f"refunded 20 EUR for {name}"]
        handle = await workers.start(own, Asks.run, name)
        await until_asked(handle)
        await workers.rig.decide(await asked_call(workers.rig, handle, workers.client))
        assert await handle.result() == {"order": name, "euro": 200}
    assert ran(name) == [20]


async def test_reset_before_a_completed_run_does_not_repeat_it(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Twice.run, name, 200.0)
        newest = workers.client.get_workflow_handle(handle.id)
        await until(lambda: _has_looked(newest))
        await reset_workflow(workers.client, handle.id, (), to_start=True)
        await newest.signal(Twice.go_on)
        await workers.rig.decide(await workers.asked(handle, 2, order=name))
        told = await newest.result()
    assert told == [f"refunded 20 EUR for {name}", f"seen {name}", f"refunded 200 EUR for {name}"]
    assert ran(name) == [20, 200]


async def _has_looked(handle: WorkflowHandle[Any, Any]) -> bool:
    async for event in handle.fetch_history_events():
        if b'"seen ' in b"".join(
            each.data for each in await _plain(handle, event.activity_task_completed_event_attributes.result.payloads)
        ):
            return True
    return False


async def _plain(handle: WorkflowHandle[Any, Any], payloads: Sequence[Payload]) -> list[Payload]:
    codec = handle._client.data_converter.payload_codec
    assert codec is not None
    return await codec.decode(payloads)


async def test_reset_during_a_request_asks_the_same(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0)])
        await until_asked(handle)
        await reset_workflow(workers.client, handle.id, (EventType.EVENT_TYPE_TIMER_STARTED,))
        newest = workers.client.get_workflow_handle(handle.id)
        await until_asked(newest)
        assert ran(name) == []
        await workers.rig.decide(await workers.asked(handle, order=name))
        assert await newest.result() == [f"refunded 200 EUR for {name}"]
    assert ran(name) == [200]


async def test_reset_during_a_run_does_not_repeat_it(workers: Workers, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(str(begun), 20.0)], "hang")
        await until(lambda: asyncio.to_thread(begun.exists))
        begun.unlink()
        await reset_workflow(workers.client, handle.id, (), to_start=True)
        [told] = await workers.client.get_workflow_handle(handle.id).result()
    assert told.startswith(IN_DOUBT)
    assert not begun.exists()


async def test_attempts_of_one_activity_share_one_permit(workers: Workers, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(str(begun), 20.0)], "slow")
        await until(lambda: asyncio.to_thread(begun.exists))
        begun.unlink()
        [told] = await handle.result()
    assert told.startswith(IN_DOUBT)
    assert not begun.exists()


async def test_new_run_asks_again(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Renewed.run, name)
        await until_asked(handle)
        first = await workers.asked(handle, order=name)
        await handle.signal(Renewed.go_on)
        assert (await workers.rig.settled(first.id))["source"] == "cancelled"
        newest = workers.client.get_workflow_handle(handle.id)
        # The run withdraws its call before the server starts the next run.
        await until(lambda: _has_next_run(newest, handle.result_run_id))
        await until_asked(newest)
        second = await workers.asked(newest, order=name)
        assert second.id != first.id
        assert ran(name) == []
        await workers.rig.decide(second)
        assert await handle.result() == f"refunded 200 EUR for {name}"
    assert ran(name) == [200]


async def test_child_workflow_asks_by_its_own_name(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Parent.run, name)
        child = workers.client.get_workflow_handle(f"{handle.id}-child")
        await until(lambda: _is_there(child))
        call = await workers.asked(child, order=name)
        await until_asked(child)
        assert ran(name) == []
        await workers.rig.decide(call)
        assert await handle.result() == f"refunded 200 EUR for {name}"
    assert ran(name) == [200]


async def _is_there(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        await handle.describe()
    except RPCError:
        return False
    return True


async def _has_next_run(handle: WorkflowHandle[Any, Any], previous: str | None) -> bool:
    return (await handle.describe()).run_id != previous


@pytest.mark.parametrize("how", [each.name for each in workflow.ActivityCancellationType])
async def test_cancellation_before_the_start_withdraws_for_every_type(workers: Workers, how: str) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Impatient.run, name, "refund", how)
        await until_asked(handle)
        call = await workers.asked(handle, order=name)
        await handle.signal(Impatient.cancel)
        assert await handle.result() == "CancelledError"
    assert (await workers.rig.settled(call.id))["source"] == "cancelled"
    assert ran(name) == []


@pytest.mark.parametrize(
    ("how", "code"), [("TRY_CANCEL", "in_doubt"), ("WAIT_CANCELLATION_COMPLETED", "in_doubt"), ("ABANDON", "ok")]
)
async def test_cancellation_during_the_run_is_recorded_by_its_type(
    workers: Workers, tmp_path: Path, how: str, code: str
) -> None:
    begun = tmp_path / "begun"
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Impatient.run, str(begun), "hang", how)
        await until(lambda: asyncio.to_thread(begun.exists))
        await handle.signal(Impatient.cancel)
        assert await handle.result() == "CancelledError"
        if how == "ABANDON":
            await asyncio.to_thread(Path(f"{begun}.end").touch)
        call = await workers.asked(handle, order=str(begun), euro=20)
        assert (await workers.rig.settled(call.id))["code"] == code


async def test_denied_activity_is_asked_about_again_under_every_name(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Stubborn.run, name)
        for number in (1, 2, 3):
            await until_asked(handle, number)
            await workers.rig.decide(await workers.asked(handle, number, order=name), verdict="denied", reason="no")
        told = await handle.result()
    assert told == ["ToolDenied: Not run: it was denied by approver: no"] * 3
    assert ran(name) == []


async def test_directly_started_activity_is_refused(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        started = await workers.client.start_activity(
            refund, args=[name, 20.0], id=f"direct-{name}", task_queue=queue, start_to_close_timeout=NEVER
        )
        with pytest.raises(ActivityFailureError) as failed:
            await started.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "ToolDenied"
    assert ran(name) == []


@dataclasses.dataclass
class Forger(Interceptor):
    use: Use

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        header = {HEADER: PayloadConverter.default.to_payload(self.use)}

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
                return self.next.start_activity(dataclasses.replace(input, headers=header))

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound


@pytest.mark.parametrize("tool", ["refund", "quick"])
async def test_stolen_permit_runs_only_its_own_call_once(workers: Workers, tool: str) -> None:
    name, other = order(), order()
    call = workers.rig.call({"order": name, "euro": 20}, tool, wait=0)
    await call.settle()
    assert call.state == "permitted"
    thief = Forger(Use(call.id, "refund"))
    async with workers.work(workers.gated()) as queue, workers.work(interceptors=[thief]) as own:
        handle = await workers.start(own, Refunds.run, [(other, 900.0)], "refund", queue)
        [told] = await handle.result()
        again = await workers.start(own, Refunds.run, [(other, 900.0)], "refund", queue)
        [told_again] = await again.result()
    assert ran(other) == []
    if tool == "refund":
        assert told == told_again == f"refunded 20 EUR for {name}"
        assert ran(name) == [20]
    else:
        assert told == "ToolDenied: Not run: it was permitted to run `quick`, which is not `refund`."
        assert ran(name) == []


@pytest.mark.parametrize("forged", [True, False])
async def test_forged_signal_permits_nothing(workers: Workers, forged: bool) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0)])
        await until_asked(handle)
        call = await workers.asked(handle, order=name)
        key = f"{handle.id}:{handle.result_run_id}:1"
        await handle.signal(SIGNAL, {"callback": {"state": key}, "state": "permitted"} if forged else b"?")
        await until_asked(handle, 2)
        assert ran(name) == []
        await workers.rig.decide(call)
        assert await handle.result() == [f"refunded 200 EUR for {name}"]
    assert ran(name) == [200]


class StrictCodec(PayloadCodec):
    """Encrypts as in Temporal's own example, and fails for data encrypted with foreign keys."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=128))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        sealed = []
        for each in payloads:
            nonce = secrets.token_bytes(12)
            data = nonce + self._cipher.encrypt(nonce, each.SerializeToString(), None)
            sealed.append(Payload(metadata={"encoding": b"binary/encrypted"}, data=data))
        return sealed

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._open(each) if each.metadata["encoding"] == b"binary/encrypted" else each for each in payloads]

    def _open(self, payload: Payload) -> Payload:
        return Payload.FromString(self._cipher.decrypt(payload.data[:12], payload.data[12:], None))


async def test_worker_with_its_own_keys_shows_the_call_and_keeps_it_secret(
    workers: Workers, plain_client: Client
) -> None:
    name = order()
    converter = dataclasses.replace(DataConverter.default, payload_codec=StrictCodec())
    own: Any = {**plain_client.config(), "data_converter": converter}
    client = Client(**own)
    async with workers.work(workers.gated(), client=client) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0)], client=client)
        await until_asked(handle)
        call = await workers.asked(handle, order=name)
        assert call.state == "waiting"
        await workers.rig.decide(call, edited_args={"order": name, "euro": 155})
        assert await handle.result() == [f"refunded 155 EUR for {name}"]
    assert ran(name) == [155]
    history = (await plain_client.get_workflow_handle(handle.id).fetch_history()).events
    written = b"".join(each.SerializeToString() for each in history)
    assert name.encode() not in written
