"""Finds the recipients of a request that no approved request of its tool had."""

from collections.abc import Iterator
from typing import Final

from signoff.approvals.argument_rows import step_from_key
from signoff.approvals.redaction import HIDDEN, redact_arguments, secret_values
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_reader import PastReader
from signoff.store.history.search_words import mark
from signoff.store.request_reader import LoadedRequest

VALUE_CHARS: Final = 200
"""Longer texts are not compared."""
ITEMS: Final = 15
"""Compared items of one list."""


def value_marks(loaded: LoadedRequest) -> frozenset[str]:
    """Return the marks of the shown values of an approved request."""
    request = loaded.request
    return frozenset(mark(request.tenant, "value", request.tool, *each) for each in _values(loaded).values())


async def find_new_recipients(deps: GatewayDeps, loaded: LoadedRequest, person: Person) -> dict[str, str]:
    """Return new values by dotted names. Counts only requests that the person may read. Raises `StoreUnavailable`."""
    names = loaded.declaration.get("card", {}).get("recipients", ())
    values = {path: value for path, value in _values(loaded).items() if value[0] in names}
    if not values:
        return {}
    known = await PastReader(deps, loaded.request.tenant, person).find_values(loaded.request.tool, values.values())
    return {path: value[1] for path, value in values.items() if value not in known}


def _values(loaded: LoadedRequest) -> dict[str, tuple[str, str]]:
    """Return argument and text of each value by its dotted name: texts and whole numbers, not in objects."""
    request = loaded.request
    secrets = {*request.secrets, *loaded.declaration["secrets"]}
    shown = redact_arguments(loaded.args, secrets, secret_values(loaded.args, secrets))
    tops = [name for name in shown if name not in secrets and (request.show is None or name in request.show)]
    return {path: (name, text) for name in tops for path, text in _texts(step_from_key(name), shown[name])}


def _texts(path: str, value: object) -> Iterator[tuple[str, str]]:
    items = [(f"{path}.{at}", item) for at, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
    for name, item in items[:ITEMS]:
        text = str(item) if isinstance(item, str | int) and not isinstance(item, bool) else ""
        # A masked text is not the value.
        if 0 < len(text) <= VALUE_CHARS and HIDDEN not in text:
            yield name, text
