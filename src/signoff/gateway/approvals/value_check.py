"""Checks whether a person has read all values of a question if its card does not show all of them."""

import hmac

from signoff.approvals.unseen_values import ValuePages, seen_hash
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.gateway.approvals.secret_masks import masked_args, masked_request
from signoff.store.questions.opened_values import OpenedValues
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store


def value_pages(loaded: LoadedRequest) -> ValuePages:
    declared = loaded.declaration
    # Both, as for the card: secrets of the tool itself stay hidden even if the question does not list them.
    secrets = {*loaded.request.secrets, *declared["secrets"]}
    return ValuePages(loaded.args, declared["input_schema"], secrets)


def proof_of(loaded: LoadedRequest) -> str:
    """An approval sends this proof back."""
    return seen_hash(loaded.request.question_hash, masked_args(loaded.args, loaded.request.secrets))


def whole_request(loaded: LoadedRequest) -> ApprovalRequest:
    """Add all arguments and the proof of reading, and mask the secrets."""
    return masked_request(replace(loaded.request, args=Content(inline=loaded.args), seen=proof_of(loaded)))


async def open_page(store: Store, loaded: LoadedRequest, person: Person, page: int) -> None:
    """`page` counts from 1. Raises `StoreUnavailable`."""
    await OpenedValues(store).add(loaded.request.question_hash, loaded.request.tenant, person.id, page)


async def unopened_pages(store: Store, loaded: LoadedRequest, person: Person) -> int:
    """Return the number of pages that remain before an approval; 0 for a whole card. Raises `StoreUnavailable`."""
    request = loaded.request
    if request.card.whole:
        return 0
    pages = len(value_pages(loaded))
    return pages - await OpenedValues(store).count(request.question_hash, request.tenant, person.id, pages)


async def has_read(store: Store, loaded: LoadedRequest, person: Person, seen: str) -> bool:
    """True if the card is whole, if the person opened all pages, or if `seen` is the proof of all values.

    Raises `StoreUnavailable`.
    """
    # Compare bytes: non-ASCII text raises TypeError.
    if seen and hmac.compare_digest(seen.encode(), proof_of(loaded).encode()):
        return True
    return await unopened_pages(store, loaded, person) == 0
