"""Finds the recipients of a request that no approved request of its tool had."""

from collections.abc import Iterator
from typing import Final

from signoff.approvals.argument_rows import step_from_key
from signoff.approvals.redaction import HIDDEN, redact_arguments, secret_values
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.person import Person
from signoff.formats.visible_text import scalar_line
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_reader import PastReader
from signoff.store.history.search_words import mark
from signoff.store.request_reader import LoadedRequest

VALUE_CHARS: Final = 200
"""Longer texts are not compared."""
ITEMS: Final = 15
"""Compared items of one list."""


def value_marks(loaded: LoadedRequest) -> frozenset[str]:
    """Return the marks of an approved request's recipients."""
    request = loaded.request
    return frozenset(mark(request.tenant, "value", request.tool, *each) for each in _values(loaded).values() if each[1])


async def find_new_recipients(deps: GatewayDeps, loaded: LoadedRequest, person: Person) -> dict[str, str]:
    """Return new values by dotted names, "" for those not compared. Counts only requests that the person may read."""
    values = _values(loaded)
    named = {value for value in values.values() if value[1]}
    if not named:
        return dict.fromkeys(values, "")
    try:
        known = await PastReader(deps, loaded.request.tenant, person).find_values(loaded.request.tool, named)
    except StoreUnavailable:
        # A card without marks would show that all are known.
        return dict.fromkeys(values, "")
    return {path: value[1] for path, value in values.items() if value not in known}


def _values(loaded: LoadedRequest) -> dict[str, tuple[str, str]]:
    """Return argument and text of each recipient by its dotted name, "" for no comparison."""
    request = loaded.request
    secrets = {*request.secrets, *loaded.declaration["secrets"]}
    shown = redact_arguments(loaded.args, secrets, secret_values(loaded.args, secrets))
    found: dict[str, tuple[str, str]] = {}
    for name in loaded.declaration.get("card", {}).get("recipients", ()):
        is_open = name not in secrets and (request.show is None or name in request.show)
        for path, text in _texts(step_from_key(name), shown.get(name)):
            found[path] = (name, text if is_open else "")
    return found


def _texts(path: str, value: object) -> Iterator[tuple[str, str]]:
    items = [(f"{path}.{at}", item) for at, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
    for at, (name, item) in enumerate(items):
        if item is not None and item != "":
            yield name, _text(item) if at < ITEMS else ""


def _text(item: object) -> str:
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    text = scalar_line(item, VALUE_CHARS).text if is_number else item if isinstance(item, str) else ""
    # A masked text is not the value.
    return text if len(text) <= VALUE_CHARS and HIDDEN not in text else ""
