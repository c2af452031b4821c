"""What Meta takes at `/{phone-number-id}/messages`, as JSON Schema, and narrower: only what is documented, no more.

Written after Meta's OpenAPI description of the Business Messaging API (`InteractiveObject`, `ActionObject`,
`TemplateObject`) and, where that says nothing, after its pages on templates and business-scoped ids.
"""

from typing import Any, Final

_TITLE: Final = {"type": "string", "minLength": 1, "maxLength": 20, "pattern": r"\S"}


def _close(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def _words(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": r"\S"}


_BUTTON: Final = _close(
    ["type", "reply"],
    type={"const": "reply"},
    reply=_close(
        ["id", "title"],
        id={"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^\S(.*\S)?$"},
        title=_TITLE,
    ),
)
INTERACTIVE: Final = _close(
    ["type", "body", "action"],
    type={"const": "button"},
    header=_close(["type", "text"], type={"const": "text"}, text=_words(60)),
    body=_close(["text"], text=_words(1024)),
    footer=_close(["text"], text=_words(60)),
    action=_close(["buttons"], buttons={"type": "array", "minItems": 1, "maxItems": 3, "items": _BUTTON}),
)
TEXT: Final = _close(["body"], body=_words(4096), preview_url={"type": "boolean"})
_PARAMETER: Final = _close(
    ["type", "text"],
    type={"const": "text"},
    text={"type": "string", "minLength": 1, "maxLength": 1024, "not": {"pattern": r"[\n\r\t]| {5}"}},
)
_BODY: Final = _close(["type", "parameters"], type={"const": "body"}, parameters={"type": "array", "items": _PARAMETER})
_REPLY: Final = _close(
    ["type", "sub_type", "index", "parameters"],
    type={"const": "button"},
    sub_type={"const": "quick_reply"},
    index={"enum": [str(number) for number in range(10)]},
    parameters={
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": _close(["type", "payload"], type={"const": "payload"}, payload=_words(128)),
    },
)
TEMPLATE: Final = _close(
    ["name", "language", "components"],
    name={"type": "string", "pattern": "^[a-z0-9_]{1,512}$"},
    language=_close(["policy", "code"], policy={"const": "deterministic"}, code={"type": "string", "minLength": 2}),
    components={"type": "array", "items": {"oneOf": [_BODY, _REPLY]}},
)
_COMMON: Final = {
    "messaging_product": {"const": "whatsapp"},
    "recipient_type": {"const": "individual"},
    "to": {"type": "string", "pattern": "^[0-9]{5,20}$"},
    "recipient": {"type": "string", "pattern": r"^[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}$"},
    "context": _close(["message_id"], message_id={"type": "string", "pattern": "^wamid"}),
}


def _message(kind: str, shape: dict[str, Any]) -> dict[str, Any]:
    required = ["messaging_product", "recipient_type", "type", kind]
    return _close(required, **_COMMON, **{"type": {"const": kind}, kind: shape})


MESSAGE: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "anyOf": [{"required": ["to"]}, {"required": ["recipient"]}],
    "oneOf": [_message("interactive", INTERACTIVE), _message("text", TEXT), _message("template", TEMPLATE)],
}
"""The body of a message: with buttons, of text, or a template."""
