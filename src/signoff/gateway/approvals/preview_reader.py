"""Reads the preview of a request's effect for its readers."""

from datetime import datetime

from signoff.approvals.previews.parts import read_parts
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.person import Person
from signoff.contracts.preview import AnyPart
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.content_store import load
from signoff.store.store import Store


def may_see_preview(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> bool:
    """Return whether a person may decide the request, or the policy shows the preview to them as the requester.

    A preview may read more than the requester may.
    """
    if request.preview_for == "requester" and person.id == request.requester.user:
        return True
    return not resolve_eligibility(person, people, approver_spec_of(request), now).code


async def load_parts(store: Store, question: Question) -> tuple[AnyPart, ...]:
    """Return the parts as approvers see them. Raises `StoreUnavailable`, also for parts that were changed."""
    preview = question.preview
    if preview is None or preview.parts is None:
        return ()
    body = await load(store, preview.parts)
    if sha256_hex(body) != preview.sha256:
        raise StoreUnavailable(f"the preview of `{question.id}` was changed in the store")
    return read_parts(body)
