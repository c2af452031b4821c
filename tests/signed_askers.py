from datetime import datetime
from typing import Any

from signoff.contracts.call import CallContext
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.keys.signature_form import principal_as_asked
from signoff.keys.signatures import Signer


def signed_asker(
    signer: Signer, user: Principal, tenant: str, session: str, turn: str, *, at: datetime, **fields: Any
) -> Principal:
    """The requester has no nonce, so that the digests of its calls are known. `fields` belong to the context: the
    channel, `extra`, route and step.
    """
    ctx = CallContext(**{"actor": "desk", "tenant": tenant, "session": session, "turn": turn, "user": user} | fields)
    asker = principal_as_asked(ctx, nonce="", at=at, any_actor="actor" not in fields)
    return signer.sign_principal(replace(ctx, user=asker))
