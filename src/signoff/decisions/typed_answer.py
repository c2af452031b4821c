"""Checks a person's answer instead of a run against the tool's `answer_schema`."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, select

from signoff.approvals.machine import refusal
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import RegistrationError
from signoff.contracts.limits import ANSWER_BYTES
from signoff.contracts.receipt import Receipt
from signoff.formats.bounds import bounds_remark
from signoff.formats.json_schema import compile_schema
from signoff.languages.remarks import english
from signoff.store.tables import BLOBS

ANSWER_SCHEMA: Final = "answer_schema"
"""The key of the schema in a tool's declaration."""


def answer_objection(connection: Connection, asked: ApprovalRequest, answer: Any) -> Receipt | None:
    """Return why an answer cannot count, by the declaration that the question names, or `None`."""
    schema = _stored_schema(connection, asked)
    if schema is None:
        return refusal(asked, "not_allowed", why="no_answer")
    found = answer_problem(schema, answer)
    return refusal(asked, "malformed", english(found), remarks=(found,)) if found else None


def answer_problem(schema: Mapping[str, Any], answer: Any) -> Words:
    """Return the first problem of an answer with its place, or ""."""
    bound = bounds_remark(answer)
    if bound:
        return _at("", Remark.of("answer.hold", detail=bound))
    try:
        if len(canonical_json(answer)) > ANSWER_BYTES:
            return _at("", Remark.of("answer.bytes", n=str(ANSWER_BYTES)))
        problems = compile_schema(schema, field=ANSWER_SCHEMA, of_object=False).check(answer)
    except (NotCanonical, RegistrationError):
        return _at("", Remark.of("unchecked"))
    return _at(problems[0].path, problems[0].message) if problems else ""


def _at(path: str, problem: Words) -> Words:
    inside = path if path.startswith("[") else f".{path}" if path else ""
    return Remark.of("at", place=f"`answer{inside}`", detail=problem)


def _stored_schema(connection: Connection, question: Question) -> Mapping[str, Any] | None:
    body = connection.scalar(select(BLOBS.c.body).where(BLOBS.c.sha256 == question.definition))
    # A worker writes both rows: only the hash in the approved question binds the schema.
    if body is None or hashlib.sha256(bytes(body)).hexdigest() != question.definition:
        return None
    declared = json.loads(bytes(body))
    found = declared.get(ANSWER_SCHEMA) if declared.get("name") == question.tool else None
    return found if isinstance(found, dict) else None
