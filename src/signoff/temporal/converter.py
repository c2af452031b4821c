"""Converts values to Temporal payloads: JSON by pydantic, with one set of validators for the whole process."""

from dataclasses import replace
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    PayloadCodec,
)

from signoff.contracts.frozen_model import FrozenModel


class _JsonConverter(PydanticJSONPlainPayloadConverter):
    """Leaves computed fields out of records, and defaults out of messages between workflows and activities."""

    def to_payload(self, value: Any) -> Payload | None:
        """See `PydanticJSONPlainPayloadConverter`."""
        if not isinstance(value, FrozenModel):
            return super().to_payload(value)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=value.on_wire())


def _encodings() -> tuple[Any, ...]:
    """Returns the SDK's converters in their order, ours in the place of the one for JSON."""
    ours = _JsonConverter()
    return tuple(
        ours if each.encoding == ours.encoding else each for each in DefaultPayloadConverter().converters.values()
    )


# The SDK is given a class, which it calls without arguments: only what its instances are made of can be shared.
_ENCODINGS: Final = _encodings()


class SharedConverter(CompositePayloadConverter):
    """Builds the validators of the SDK's pydantic converter once.

    The SDK makes a converter for each workflow instance and two for each of its tasks, and every one of its own would
    build the validators of all our types again, and keep them as long as the instance.
    """

    def __init__(self) -> None:
        super().__init__(*_ENCODINGS)


DATA_CONVERTER: Final = DataConverter(payload_converter_class=SharedConverter)
"""What every client and worker of Signoff uses. But for `FrozenModel` it writes what `temporalio.contrib.pydantic`
writes."""


def encrypting_converter(codec: PayloadCodec | None) -> DataConverter:
    """Returns the converter with `codec` in it; messages and traces of failures are encoded too."""
    if codec is None:
        return DATA_CONVERTER
    return replace(
        DATA_CONVERTER, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )
