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
    """Omits computed fields from records, and defaults from messages between workflows and activities."""

    def to_payload(self, value: Any) -> Payload | None:
        if not isinstance(value, FrozenModel):
            return super().to_payload(value)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=value.on_wire())


def _encodings() -> tuple[Any, ...]:
    ours = _JsonConverter()
    return tuple(
        ours if each.encoding == ours.encoding else each for each in DefaultPayloadConverter().converters.values()
    )


# The SDK instantiates a class without arguments, so only the parts of its instances can be shared.
_ENCODINGS: Final = _encodings()


class SharedConverter(CompositePayloadConverter):
    """Builds the validators of the SDK's pydantic converter once.

    The SDK creates a converter for each workflow instance and two for each task. Each would build the validators of all
    Signoff types again, and keep them as long as the instance.
    """

    def __init__(self) -> None:
        super().__init__(*_ENCODINGS)


DATA_CONVERTER: Final = DataConverter(payload_converter_class=SharedConverter)
"""The converter of every Signoff client and worker.

Except for `FrozenModel`, it writes like `temporalio.contrib.pydantic`.
"""


def encrypting_converter(codec: PayloadCodec | None) -> DataConverter:
    """The codec also encodes messages and traces of failures."""
    if codec is None:
        return DATA_CONVERTER
    return replace(
        DATA_CONVERTER, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )
