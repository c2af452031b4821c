from datetime import timedelta

import pytest
from gateway_login import locked_rig
from gateway_rig import GatewayRig
from starlette.requests import Request

from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.gateway.auth.caller import SignInNeeded
from signoff.gateway.auth.dependencies import TokenAccess
from signoff.store.tokens import Tokens


async def test_answer_is_withheld_if_its_token_is_revoked_during_the_wait(gateway: GatewayRig) -> None:
    """An answer may take minutes. A stream would already have ended."""
    locked = locked_rig(gateway)
    tokens, now = Tokens(locked.deps.store), locked.deps.clock()
    secret, token = await tokens.create("main", "guest", ["read"], lifetime=timedelta(days=1), now=now)
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    request = Request({"type": "http", "method": "POST", "path": "/v1/turns", "headers": headers, "app": locked.app})
    await TokenAccess("token", "read").admit(request)
    streams = locked.app.state.streams
    async with streams.hold(request):
        pass
    # The held slot is released each time.
    for _ in range(STREAMS_OF_ONE + 1):
        with pytest.raises(SignInNeeded):
            async with streams.hold(request):
                await tokens.revoke(token.id, "main", locked.deps.clock())
