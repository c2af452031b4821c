"""People, their delegations, and custom directories."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.contracts.person import Delegation as Delegation
    from signoff.contracts.person import Person as Person
    from signoff.people.directory import Directory as Directory
    from signoff.people.directory import FixedDirectory as FixedDirectory

_MODULES = {
    "Delegation": "signoff.contracts.person",
    "Directory": "signoff.people.directory",
    "FixedDirectory": "signoff.people.directory",
    "Person": "signoff.contracts.person",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
