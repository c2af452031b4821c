"""Lets a Signoff gateway approve an agent's dangerous calls, and runs approved calls once."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from signoff_client.call import Call, NotRun
    from signoff_client.call_keys import CallKeys, call_key
    from signoff_client.gate import Gate
    from signoff_client.status import CallStatus

    __version__: str

__all__ = ["Call", "CallKeys", "CallStatus", "Gate", "NotRun", "__version__", "call_key"]

_PLACES: Final = {
    "Call": ("call", "Call"),
    "CallKeys": ("call_keys", "CallKeys"),
    "CallStatus": ("status", "CallStatus"),
    "Gate": ("gate", "Gate"),
    "NotRun": ("call", "NotRun"),
    "__version__": ("gate", "VERSION"),
    "call_key": ("call_keys", "call_key"),
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: a Temporal workflow can import parts of this package, but not the HTTP library. With an
    # import statement, which Temporal's sandbox recognises.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(__import__(f"{__name__}.{module}", fromlist=[attribute]), attribute)
