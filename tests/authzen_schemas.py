import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator

_FOLDER = Path(__file__).parent / "authzen"


def schema_problems(kind: Literal["request", "response"], value: Any) -> list[str]:
    return [error.message for error in _validator(kind).iter_errors(value)]


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((_FOLDER / f"evaluation-{kind}.schema.json").read_text()))
