"""Makes the pages of every value of a request, in place of what its card has no room for."""

from typing import Any, Final

from starlette.requests import Request

from signoff.gateway.approvals.value_check import open_page, unopened_pages, value_pages
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.visitor import Visitor
from signoff.store.request_reader import LoadedRequest
from signoff.texts.catalogue import text

_PAGE_DIGITS: Final = 6


async def open_values(deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, request: Request) -> dict[str, Any]:
    """Returns what `values.html` shows on the page that `request` names, the first where it names none.

    That this visitor opened it is written down. Raises `StoreUnavailable`.
    """
    pages = value_pages(loaded)
    page = min(max(_number(request.query_params.get("page", "")), 1), len(pages))
    # A page that a browser fetches before anybody asked for it was opened by nobody.
    fetched = "prefetch" in request.headers.get("sec-purpose", "") or "purpose" in request.headers
    waits = loaded.request.state == "pending" and not loaded.request.card.whole
    if waits and not fetched:
        await open_page(deps.store, loaded, visitor.person, page)
    left = await unopened_pages(deps.store, loaded, visitor.person) if waits else 0
    language = visitor.formatter.language
    return {
        "effect": loaded.request.card.effect,
        "values": pages[page - 1],
        "total": sum(map(len, pages)),
        "page": page,
        "pages": len(pages),
        "address": request.url.path,
        "told": text("card.values.left" if left else "card.values.done", language) if waits else "",
    }


def _number(written: str) -> int:
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= _PAGE_DIGITS else 1
