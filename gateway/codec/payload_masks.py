"""Masks secret arguments in payloads that are decrypted for Temporal's UI and command line."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from temporalio.api.common.v1 import Payload

from signoff.approvals.redaction import redact_value, secret_values
from signoff.gateway.approvals.secret_masks import mask_text, masked_args
from signoff.registry.catalog import Catalog

_JSON: Final = b"json/"
_DERIVED: Final = frozenset(("digest", "sha256", "seal", "preview", "args_preview", "question_hash", "signature"))
"""Fields from which, or with which, a hidden value could be guessed and checked."""
_WHOLE: Final = frozenset(("edited_args", "provider"))
"""Fields that may hold arguments of a tool which they do not name."""


def mask_payloads(payloads: Sequence[Payload], catalog: Catalog) -> list[Payload]:
    """Returns `payloads` with the secret arguments of every call in them masked, and their texts wherever else in them.

    Of a call whose tool the catalog lacks nobody can say which are secret: all its arguments are hidden. What is not
    JSON, which nothing of ours writes, stays as it is.
    """
    documents = [_read(each) for each in payloads]

    def secret_names(tool: str) -> tuple[str, ...] | None:
        declared = catalog.tools_named(tool)
        if not declared:
            return () if tool == "respond" else None
        # Which of several was meant is not known here, so what any of them hides is hidden.
        return tuple(sorted({name for each in declared for name in each.masked_arguments}))

    texts: set[str] = set()
    for document in documents:
        for tool, args in _calls(document):
            texts |= secret_values(args, secret_names(tool) or ())
    masked = _Masked(secret_names, frozenset(texts))
    return [_mask_payload(each, document, masked) for each, document in zip(payloads, documents, strict=True)]


class _Masked:
    def __init__(self, names: Callable[[str], tuple[str, ...] | None], texts: frozenset[str]) -> None:
        self._names = names
        self._texts = texts

    def of(self, document: Any) -> Any:
        return redact_value(self._without_arguments(document), self._texts)

    def _without_arguments(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._without_arguments(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        names = self._names(str(value.get("tool", ""))) if "args" in value else ()
        return {key: self._field(key, each, names) for key, each in value.items()}

    def _field(self, key: str, value: Any, names: tuple[str, ...] | None) -> Any:
        if key in _WHOLE and value is not None:
            return mask_text(None)
        if key == "args" and names != ():
            return _masked_content(value, names)
        # Beside any secret, not of this call alone: a permit holds the digest of arguments that stand elsewhere.
        if key in _DERIVED and (names != () or self._texts):
            return mask_text(None)
        return self._without_arguments(value)


def _masked_content(args: Any, names: Collection[str] | None) -> Any:
    if names is None or not isinstance(args, Mapping):
        return mask_text(None)
    if "blob" in args and args["blob"] is not None:
        return {"blob": mask_text(None)}
    return {**args, "inline": masked_args(args["inline"], names)} if "inline" in args else masked_args(args, names)


def _calls(document: Any) -> Iterator[tuple[str, Any]]:
    """Yields the tool and the arguments of every call in a document."""
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, Mapping):
            args = value.get("args")
            if isinstance(args, Mapping):
                yield str(value.get("tool", "")), args.get("inline", args)
            stack.extend(value.values())


def _read(payload: Payload) -> Any:
    if not payload.metadata.get("encoding", b"").startswith(_JSON):
        return None
    try:
        return json.loads(payload.data)
    except (ValueError, RecursionError):
        return None


def _mask_payload(payload: Payload, document: Any, masked: _Masked) -> Payload:
    if document is None:
        return payload
    data = json.dumps(masked.of(document), ensure_ascii=False, separators=(",", ":"))
    return Payload(metadata=payload.metadata, data=data.encode("utf-8", "surrogatepass"))
