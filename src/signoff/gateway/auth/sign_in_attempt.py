"""A sign-in with an OpenID Connect provider, between the browser's way there and its way back."""

from dataclasses import dataclass
from typing import Final

CALLBACK: Final = "/login/oidc/callback"


@dataclass(frozen=True)
class SignInAttempt:
    """A sign-in on its way: what the browser must bring back, and what the token must say."""

    state: str
    nonce: str
    verifier: str
