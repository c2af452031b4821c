"""Reads what a policy enforcement point sends: who is to do what, as AuthZEN's Authorization API 1.0 has it."""

from typing import Any, Final, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictStr, ValidationError

from signoff.contracts.errors import BadRequest
from signoff.contracts.requests import sentence
from signoff.formats.bounds import bounds_problem
from signoff.formats.json_reader import NotJson, read_json

_ID_CHARS: Final = 2_000
_BAD_REQUEST: Final = 400


class PointBody(BaseModel):
    """An object of a request. What nobody here knows is passed over, as the specification asks."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EntityPart(PointBody):
    """A subject or a resource."""

    type: StrictStr
    id: StrictStr
    properties: dict[str, Any] = {}


class ActionPart(PointBody):
    """What is to be done."""

    name: StrictStr
    properties: dict[str, Any] = {}


class EvaluationBody(PointBody):
    """Whether a subject may do something with a resource."""

    subject: EntityPart
    action: ActionPart
    resource: EntityPart
    context: dict[str, Any] = {}


class DenialPart(PointBody):
    """The denial that an access request is about, as far as it proves that there was one."""

    evaluation_id: StrictStr = Field(default="", max_length=_ID_CHARS)
    expires_at: AwareDatetime | None = None


class ActorPart(PointBody):
    """Who submits an access request in the subject's name."""

    id: StrictStr
    act: dict[str, Any] | None = None


class ClientPart(PointBody):
    """The program that submits an access request."""

    actor: ActorPart | None = None


class SubmissionBody(EvaluationBody):
    """Asks that what was denied be approved."""

    denial: DenialPart
    client: ClientPart | None = None


B = TypeVar("B", bound=PointBody)


def parse_body(kind: type[B], sent: bytes) -> B:
    """Parses a body. Raises `BadRequest` (400) for one that is none, in a sentence that names the fields."""
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
