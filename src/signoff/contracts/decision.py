"""A person's decision, as it reaches the turn."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import StringConstraints

from signoff.contracts.frozen_model import FrozenModel

Verdict = Literal[
    "approved", "denied", "answered", "happened", "withdrawn", "retracted", "handed_on", "added"
]  # fmt: skip
"""The verdict of a decision.

`answered` gives the model a person's answer in place of a run. `happened` only answers a question about an unknown
outcome. There, `approved` says that the call did not happen and may run, and `denied` gives it up. `withdrawn` is the
verdict of an envelope for `cancel`, not an answer. `retracted` undoes a denial of the inbox. `handed_on` and `added`
change who decides. Only the gateway writes these three.
"""
Assigning = Literal["handed_on", "added"]
ASSIGNING: Final[tuple[Assigning, ...]] = ("handed_on", "added")
"""The verdicts that change who decides, and are no votes."""
Assurance = Literal["none", "link", "channel", "session", "mfa", "present"]
"""The strength of a person's identification. `present`: a passkey has verified the person for exactly this decision."""
ASSURANCES: tuple[Assurance, ...] = ("none", "link", "channel", "session", "mfa", "present")
"""Every `Assurance`, weakest first."""
UNSIGNED = "unsigned"
"""The subject recorded for an answer without a name."""


class GrantRequest(FrozenModel):
    """Requests the same answer to later calls like this one."""

    scope: Literal["session", "tenant"] = "session"
    """The sessions: this one, or all of the tenant."""
    where: str = ""
    """A CEL predicate over `args`. "" for exactly these arguments."""
    seconds: float = 3_600.0
    """The lifetime in seconds."""
    uses: int = 10
    """The number of calls."""


Base64Url = Annotated[str, StringConstraints(max_length=4_096, pattern=r"^[A-Za-z0-9_-]*$")]
"""Bytes in base64url without padding."""


class Passkey(FrozenModel):
    """One person's passkey, as the gateway registered and signed it."""

    credential: Base64Url
    """The authenticator's id of it."""
    tenant: str
    person: str
    """The id of the person."""
    public_key: Base64Url
    """The public key in COSE form."""
    rp_id: str
    """The host name for which it was made."""
    origin: str
    """The origin of the pages that may use it."""
    added_at: datetime
    """In UTC."""
    added_by: str
    """The id of the person who added it."""
    key_id: str = ""
    """The gateway's signing key."""
    signature: str = ""
    """Ed25519, in base64, over all other fields."""


class PasskeyAssertion(FrozenModel):
    """An authenticator's answer to the challenge of one decision."""

    credential: Base64Url
    """The id of the passkey."""
    nonce: Base64Url
    """The single-use nonce in the challenge."""
    authenticator_data: Base64Url
    client_data: Base64Url
    """The browser's JSON, with challenge and origin."""
    signature: Base64Url
    """The authenticator's signature."""


class Presence(FrozenModel):
    """The proof that a person decided with a passkey."""

    passkey: Passkey
    assertion: PasskeyAssertion


class Decision(FrozenModel):
    """One answer to one request. An unsigned one needs only `approval_id` and `verdict`."""

    v: int = 1
    """The version of this form."""
    approval_id: str
    revision: int | None = None
    """The revision of the answered question."""
    question_hash: str = ""
    """Binds the decision to call, terms and preview as shown."""
    thread: str = ""
    """Binds an approval to the messages about the request, as shown: their hash. "" without messages."""
    verdict: Verdict
    edited_args: dict[str, Any] | None = None
    """The author's arguments for an edit."""
    answer: Any = None
    """With `answered`: the author's answer, by the tool's `answer_schema`."""
    reason: str = ""
    """The author's reason."""
    subject: str = ""
    """The author's id, verified by the gateway."""
    channel: str = ""
    """The channel of the answer, verified by the gateway."""
    assurance: Assurance = "none"
    """The author's identification by the gateway."""
    delivery_id: str = ""
    """The id of this delivery: a repeated delivery is the same answer."""
    received_at: datetime | None = None
    """When the gateway received it, by the gateway's clock."""
    remember: GrantRequest | None = None
    """The request to remember the answer."""
    result: str = ""
    """The author's statement of an unknown outcome."""
    presence: Presence | None = None
    """The proof of the assurance `present`."""
    to: str = ""
    """With `handed_on` and `added`: the id of the person who decides next, or besides."""
    to_name: str = ""
    """That person's name."""
    on_call: tuple[str, ...] = ()
    """The author's entries `oncall:<rota>` on receipt, by the gateway."""
    assigned: str = ""
    """The SHA-256 of all earlier hand-ons and additions of the approval. "" without any."""
    key_id: str = ""
    """The gateway's signing key. "" for an unverified author."""
    signature: str = ""
    """Ed25519, in base64, over the bytes of keys/signature_form.py. "" for an unverified author."""


def at_least(have: Assurance, need: Assurance) -> bool:
    return ASSURANCES.index(have) >= ASSURANCES.index(need)
