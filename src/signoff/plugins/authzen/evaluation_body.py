"""Reads a policy enforcement point's request (AuthZEN's Authorization API 1.0)."""

from typing import Any, Final, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictStr, ValidationError

from signoff.contracts.errors import BadRequest
from signoff.contracts.requests import sentence
from signoff.formats.bounds import bounds_problem
from signoff.formats.json_reader import NotJson, read_json

_ID_CHARS: Final = 2_000
_BAD_REQUEST: Final = 400


class PointBody(BaseModel):
    """An object of a request. Unknown fields are ignored, as the specification requires."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EntityPart(PointBody):
    """A subject or a resource."""

    type: StrictStr
    id: StrictStr
    properties: dict[str, Any] = {}


class ActionPart(PointBody):
    """The requested action."""

    name: StrictStr
    properties: dict[str, Any] = {}


class EvaluationBody(PointBody):
    """Asks whether a subject may do something with a resource."""

    subject: EntityPart
    action: ActionPart
    resource: EntityPart
    context: dict[str, Any] = {}


class DenialPart(PointBody):
    """The denial behind an access request, as proof that there was one."""

    evaluation_id: StrictStr = Field(default="", max_length=_ID_CHARS)
    expires_at: AwareDatetime | None = None


class ActorPart(PointBody):
    """The submitter of an access request in the subject's name."""

    id: StrictStr
    act: dict[str, Any] | None = None


class ClientPart(PointBody):
    """The program that submits an access request."""

    actor: ActorPart | None = None


class SubmissionBody(EvaluationBody):
    """Requests approval of a denied call."""

    denial: DenialPart
    client: ClientPart | None = None


B = TypeVar("B", bound=PointBody)


def parse_body(kind: type[B], sent: bytes) -> B:
    """Raises `BadRequest` (400) with a sentence that names the fields."""
    try:
        found = read_json(sent)
    except NotJson as error:
        raise BadRequest(f"the body {error}", status=_BAD_REQUEST) from None
    if not isinstance(found, dict):
        raise BadRequest("the body must be a JSON object", status=_BAD_REQUEST)
    if why := bounds_problem(found):
        raise BadRequest(f"the body cannot be taken: {why}", status=_BAD_REQUEST)
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise BadRequest(sentence(error.errors()), status=_BAD_REQUEST) from None
