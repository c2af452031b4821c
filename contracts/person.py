"""People and those on whose behalf a turn runs."""

from typing import Any

from pydantic import Field

from signoff.contracts.base import Shape
from signoff.contracts.names import DEFAULT_TENANT


class Person(Shape):
    """One person of a directory; `id` matches `ID_PATTERN`.

    `attributes` are the values of the context fields `user.<name>` that the manifest declares.
    """

    id: str
    name: str = ""
    tenant: str = DEFAULT_TENANT
    tier: str = "standard"
    roles: tuple[str, ...] = ()
    locale: str = "en"
    active: bool = True
    attributes: dict[str, Any] = Field(default_factory=dict)


class Principal(Shape):
    """Who asked for a turn, filled in by the gateway from its directory, never from a request body."""

    user: str
    name: str = ""
    tier: str = "standard"
    roles: tuple[str, ...] = ()
    locale: str = "en"
