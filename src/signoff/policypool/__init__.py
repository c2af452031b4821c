"""Processes with limits of memory and time that evaluate costly policy expressions."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.policypool.pool import install as install

_MODULES = {"install": "signoff.policypool.pool"}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
