"""Says who may be told that a call of an external agent is settled: addresses, and workflows of the namespace."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from signoff.contracts.call import Callback

SIGNAL: Final = "signoff.call"
"""The signal that a workflow is sent where nothing else is declared."""
OWN_WORKFLOWS: Final = ("turn/", "session/")
"""How the ids of Signoff's own workflows begin, which no agent has signals sent to."""
_HIDDEN_STEPS: Final = ("\\", "%2e", "%2f", "%5c")
"""Spellings by which a path may lead elsewhere than it reads."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Whom an external agent may have told that its calls are settled."""

    urls: tuple[str, ...] = ()
    """Addresses; one that ends with `/` stands for all below it. What is posted there is signed."""
    secret: str = ""
    """The signing secret, `env:NAME`; its value is `whsec_` and base64."""
    previous_secret: str = ""
    """The secret before this one, while both are in use."""
    allow_networks: tuple[str, ...] = ()
    """Private networks they may lie in, such as `10.0.0.0/8`."""
    workflows: tuple[str, ...] = ()
    """Ids of workflows of the namespace, or their beginnings with `*`."""
    signals: tuple[str, ...] = (SIGNAL,)
    """The signals that workflows may be sent."""

    def allows(self, callback: Callback) -> bool:
        """Returns whether the agent may name this place."""
        if callback.workflow is not None:
            named = callback.workflow
            return named.signal in self.signals and self._allows_workflow(named.id)
        return self._allows_url(callback.url)

    def _allows_url(self, url: str) -> bool:
        # Compared as it is written: scheme, host and port are those of the declaration up to its first `/`, and what
        # another reader would take for another path than the one that was compared is none that is allowed.
        if not url.isascii() or not url.isprintable() or " " in url or "#" in url:
            return False
        path = url.partition("?")[0].lower()
        if any(each in path for each in _HIDDEN_STEPS) or any(each in (".", "..") for each in path.split("/")):
            return False
        return any(url.startswith(each) if each.endswith("/") else url == each for each in self.urls)

    def _allows_workflow(self, name: str) -> bool:
        if name.startswith(OWN_WORKFLOWS):
            return False
        return any(
            name.startswith(each.removesuffix("*")) if each.endswith("*") else name == each for each in self.workflows
        )


def is_callback_address(url: str) -> bool:
    """Returns whether a declared address is whole: with a host and a path, so that it stands for no other host."""
    try:
        parts = urlsplit(url)
        # Read for its check: a port that is none would be noticed with the first call.
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not {" ", "?", "#", "\\"}.intersection(url)
    whole = bool(parts.hostname) and parts.path.startswith("/") and "@" not in parts.netloc
    return plain and whole and parts.scheme in ("https", "http")
