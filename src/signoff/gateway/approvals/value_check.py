"""Says whether a person has read all of a question whose card does not draw every value of it."""

import hmac
from collections.abc import Sequence

from signoff.approvals.unseen_values import FullValue, every_value, pages_of, seen_hash
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.gateway.approvals.secret_masks import masked_args, masked_request
from signoff.store.opened_values import OpenedValues
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store


def value_pages(loaded: LoadedRequest) -> list[Sequence[FullValue]]:
    """Returns every value of a request, in the pages in which people open them."""
    declared = loaded.declaration
    # Both, as for the card: what a question leaves out of them must not show what the tool itself declares secret.
    secrets = {*loaded.request.secrets, *declared["secrets"]}
    return pages_of(every_value(loaded.args, declared["input_schema"], secrets))


def proof_of(loaded: LoadedRequest) -> str:
    """Says what goes with the one view that gives every value of a request, and comes back with a yes to it."""
    return seen_hash(loaded.request.question_hash, masked_args(loaded.args, loaded.request.secrets))


def whole_request(loaded: LoadedRequest) -> ApprovalRequest:
    """Returns a request as it may be shown with every argument, secret ones masked, and with what proves that it was
    given.
    """
    return masked_request(replace(loaded.request, args=Content(inline=loaded.args), seen=proof_of(loaded)))


async def open_page(store: Store, loaded: LoadedRequest, person: Person, page: int) -> None:
    """Writes down that a person opened a page (from 1) of the values of a request. Raises `StoreUnavailable`."""
    await OpenedValues(store).add(loaded.request.question_hash, loaded.request.tenant, person.id, page)


async def unopened_pages(store: Store, loaded: LoadedRequest, person: Person) -> int:
    """Says how many pages of values a person still has to open before they may approve; 0 for a whole card.

    Raises `StoreUnavailable`.
    """
    request = loaded.request
    if request.card.whole:
        return 0
    pages = len(value_pages(loaded))
    return pages - await OpenedValues(store).count(request.question_hash, request.tenant, person.id, pages)


async def has_read(store: Store, loaded: LoadedRequest, person: Person, seen: str) -> bool:
    """Returns whether a person may approve a request as far as reading it goes.

    Its card is whole, or they opened every page of its values, or sent back as `seen` what came with all of them.
    Raises `StoreUnavailable`.
    """
    # As bytes: text that is not ASCII raises TypeError.
    if seen and hmac.compare_digest(seen.encode(), proof_of(loaded).encode()):
        return True
    return await unopened_pages(store, loaded, person) == 0
