"""A sign-in with an OpenID Connect provider, while the browser is at the provider."""

from dataclasses import dataclass
from typing import Final

CALLBACK: Final = "/login/oidc/callback"


@dataclass(frozen=True)
class SignInAttempt:
    """An open sign-in: the values that the browser must bring back and the token must hold."""

    state: str
    nonce: str
    verifier: str
