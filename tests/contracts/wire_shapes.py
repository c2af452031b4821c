"""`python tests/contracts/wire_shapes.py` writes `activity_messages.json`, which `test_wire_shapes.py` compares."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from signoff.contracts.frozen_model import ActivityMessage

# All modules that define messages, so that all subclasses are known.
from signoff.contracts import activity_messages, turn  # noqa: F401  # isort: skip

FILE = Path(__file__).parent / "activity_messages.json"
_PLACES = re.compile(r"\b(signoff\.[a-z_.]+|datetime|typing)\.")


def messages() -> list[type[ActivityMessage]]:
    return sorted(ActivityMessage.__subclasses__(), key=lambda each: each.__name__)


def reachable() -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = list(messages())
    while waiting:
        shape = waiting.pop()
        if shape.__name__ not in found:
            found[shape.__name__] = shape
            waiting += [each for field in _sent(shape).values() for each in _records(field.annotation)]
    return [found[name] for name in sorted(found)]


def described() -> dict[str, Any]:
    return {shape.__name__: {name: _field(each) for name, each in _sent(shape).items()} for shape in reachable()}


def _sent(shape: type[BaseModel]) -> dict[str, FieldInfo]:
    return {name: field for name, field in shape.model_fields.items() if not field.exclude}


def _records(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _records(inner)


def _field(field: FieldInfo) -> str:
    plain = isinstance(field.annotation, type) and not get_args(field.annotation)
    kind = _PLACES.sub("", field.annotation.__name__ if plain else str(field.annotation))
    default = field.get_default(call_default_factory=True)
    return kind if default is PydanticUndefined else f"{kind} = {json.dumps(to_jsonable_python(default))}"


def text() -> str:
    return json.dumps(described(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
