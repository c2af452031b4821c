"""A worker of Signoff does not walk over payloads that nothing would change; whatever could is asked as before."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, PayloadCodec

from signoff.temporal.converter import DATA_CONVERTER, encrypting_converter
from signoff.temporal.payload_visits import spare_visits

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"hello"')


class Reversing(PayloadCodec):
    """Writes the bytes of each payload backwards, both ways."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See `PayloadCodec`."""
        return [Payload(metadata=each.metadata, data=each.data[::-1]) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See `PayloadCodec`."""
        return await self.encode(payloads)


class Walked(DataConverter):
    """Keeps what it is asked about payloads in `asked`."""

    asked: list[str]

    async def _decode_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.asked.append("decode")
        return await super()._decode_payload_sequence(payloads)

    async def _encode_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.asked.append("encode")
        return await super()._encode_payload_sequence(payloads)


async def passed(converter: DataConverter) -> tuple[bytes, bytes]:
    """What becomes of a payload on its way to a workflow, and of one on its way out."""
    task, done = WorkflowActivation(), WorkflowActivationCompletion()
    task.jobs.add().signal_workflow.input.add().CopyFrom(PLAIN)
    done.successful.commands.add().complete_workflow_execution.result.CopyFrom(PLAIN)
    given: dict[str, Any] = {"storage_concurrency_limit": 1}
    await bridge.decode_activation(task, converter, decode_headers=False, **given)
    await bridge.encode_completion(done, converter, encode_headers=False, **given)
    result = done.successful.commands[0].complete_workflow_execution.result
    return task.jobs[0].signal_workflow.input[0].data, result.data


async def test_nothing_is_walked_over_without_a_codec() -> None:
    """Within the block, and only there: another worker of the process goes on as the SDK has it."""
    walked = Walked(payload_converter_class=DATA_CONVERTER.payload_converter_class)
    asked: list[str] = []
    object.__setattr__(walked, "asked", asked)
    with spare_visits():
        assert await passed(walked) == (b'"hello"', b'"hello"')
    assert asked == []
    assert await passed(walked) == (b'"hello"', b'"hello"')
    assert asked == ["decode", "encode"]


async def test_a_codec_is_asked_all_the_same() -> None:
    """An installation that encrypts is spared nothing."""
    with spare_visits():
        assert await passed(encrypting_converter(Reversing())) == (b'"olleh"', b'"olleh"')
