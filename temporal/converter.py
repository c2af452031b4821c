"""Converts values to Temporal payloads: JSON by pydantic, with one set of validators for the whole process."""

from typing import Final

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter

# The SDK is given a class, which it calls without arguments: only what its instances are made of can be shared.
_ENCODINGS: Final = tuple(PydanticPayloadConverter().converters.values())


class SharedConverter(CompositePayloadConverter):
    """Builds the validators of the SDK's pydantic converter once.

    The SDK makes a converter for each workflow instance and two for each of its tasks, and every one of its own would
    build the validators of all our types again, and keep them as long as the instance.
    """

    def __init__(self) -> None:
        super().__init__(*_ENCODINGS)


DATA_CONVERTER: Final = DataConverter(payload_converter_class=SharedConverter)
"""What every client and worker of Signoff uses. It writes what `temporalio.contrib.pydantic` writes."""
