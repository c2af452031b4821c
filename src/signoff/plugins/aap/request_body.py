"""Reads an adapter's request strictly: no unknown fields, no nulls, exact numbers."""

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError

from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.limits import ARGUMENTS_BYTES, KIB
from signoff.contracts.requests import sentence
from signoff.formats.bounds import SEND_IN_PARTS, bounds_problem, bounds_remedy
from signoff.formats.durations import seconds
from signoff.formats.json_reader import NotJson, read_json
from signoff.plugins.aap.problems import ApprovalProblem

CONTEXT_BYTES: Final = 16 * KIB
"""The maximum size of an adapter's context and of the agent's reasoning."""
TOOL_CHARS: Final = 200
_DURATION: Final = re.compile(r"[1-9][0-9]{0,8}[smh]\Z", re.ASCII)


def read_duration(given: Any) -> str:
    """Raise `ValueError` for a text that is no duration of the protocol."""
    if not isinstance(given, str) or _DURATION.match(given) is None:
        raise ValueError("must be a positive whole number of seconds, minutes or hours, as `30s`, `30m` or `24h`")
    seconds(given)
    return given


Duration = Annotated[StrictStr, BeforeValidator(read_duration)]
"""A positive whole number with the unit `s`, `m` or `h`."""


class AdapterBody(BaseModel):
    """An object from an adapter. An unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CreateBody(AdapterBody):
    """A request to run one tool call."""

    tool: StrictStr = Field(min_length=1, max_length=TOOL_CHARS)
    arguments: dict[str, Any]
    timeout: Duration
    server: StrictStr = Field(default="", min_length=1, max_length=TOOL_CHARS)
    agent_reasoning: StrictStr = Field(default="", max_length=CONTEXT_BYTES)
    context: dict[str, Any] = {}

    @property
    def tool_name(self) -> str:
        """The name in the gateway's manifest. A tool of a server has the server in its name."""
        return f"mcp__{self.server}__{self.tool}" if self.server else self.tool

    @property
    def as_sent(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class OutcomeReport(AdapterBody):
    """The outcome of an executed call."""

    status: Literal["succeeded", "failed"]
    note: StrictStr = Field(default="", min_length=1, max_length=CONTEXT_BYTES)


B = TypeVar("B", bound=AdapterBody)


def parse_body(kind: type[B], sent: bytes) -> B:
    """Raises `ApprovalProblem` with a sentence that names the fields."""
    try:
        found = read_json(sent, _parse_exactly)
    except NotJson as error:
        raise ApprovalProblem("malformed", f"the body {error}") from None
    if why := bounds_problem(found):
        raise ApprovalProblem("malformed", f"the body cannot be taken: {why}; {bounds_remedy(why)}")
    try:
        body = kind.model_validate(found)
    except ValidationError as error:
        raise ApprovalProblem("malformed", sentence(error.errors())) from None
    if isinstance(body, CreateBody):
        _check_size("arguments", body.arguments, ARGUMENTS_BYTES)
        _check_size("context", body.context, CONTEXT_BYTES)
    return body


def _parse_exactly(text: str) -> float:
    # The adapter compares the response with its request digit by digit: with a rounded number it would reject its own
    # call.
    number = float(text)
    try:
        if Decimal(repr(number)) == Decimal(text):
            return number
    except InvalidOperation:
        pass
    raise NotJson("holds a number of more digits than can be carried; send it as a string")


def _check_size(name: str, value: Any, most: int) -> None:
    try:
        size = len(canonical_json(value))
    except NotCanonical:
        raise ApprovalProblem("malformed", f"`{name}` holds a value that JSON cannot carry safely") from None
    if size > most:
        raise ApprovalProblem("too_large", f"`{name}` is larger than {most // KIB} KiB; {SEND_IN_PARTS}")
