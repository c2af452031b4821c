import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee, until
from changed_site import changed_site
from impostor import Impostor
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import WorkflowUpdateFailedError

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.temporal.embedded_server import ServerHandle
from signoff.testing.vendor_server import serve_vendor

pytestmark = pytest.mark.timeout(300)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SMALL, LARGE = 9, 9_400
CHANNEL = """
channels:
  hook: {{kind: webhook, url: "{url}/hook", secret: "env:HOOK_SECRET", allow_networks: ["127.0.0.0/8"]}}
routing: {{default: [hook]}}
"""


class Ears:
    def __init__(self) -> None:
        self.messages: list[str] = []

    async def _take(self, request: Request) -> Response:
        self.messages.append((await request.body()).decode())
        return Response(status_code=200)

    def app(self) -> Any:
        return Starlette(routes=[Route("/hook", self._take, methods=["POST"])])

    async def told_of(self, *some: str) -> None:
        async def look() -> bool:
            return any(all(word in each for word in some) for each in self.messages)

        await until(look)


async def asked(site: AttackSite, impostor: Impostor, amount: int, to: str) -> tuple[TurnKey, ApprovalRequest]:
    key = await site.person("rui").ask([("pay", {"amount": amount, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    [call] = (await impostor.view(key)).calls
    assert call.approval is not None
    return key, call.approval


async def test_notices_contain_nothing_forged_by_a_turn(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # A taken-over turn has the worker announce another's request of 9,400 EUR as 9 EUR, and Bo's denial of it: neither
    # notice is sent, and later ones are true. With an activity `signoff.deliver` that records its task's claims,
    # accepted by `own_problem`, notices named 9 EUR and the denial.
    to, ears = payee(), Ears()
    async with serve_vendor(ears.app()) as url:
        listens = CHANNEL.format(url=url)
        async with changed_site(attacked_server, tmp_path, listens, HOOK_SECRET=SECRET) as (site, impostor, _):
            key, _ = await asked(site, impostor, 1, to)
            other, request = await asked(site, impostor, LARGE, to)
            await ears.told_of(str(LARGE), to)
            small = request.model_dump_json().replace("9,400", str(SMALL)).replace(str(LARGE), str(SMALL))
            lie = ApprovalRequest.model_validate_json(small)
            own = {"tenant": key.tenant, "session": key.session, "turn": key.turn}
            ended = {"state": "denied", "decided_by": "bo", "decided_name": "Bo Berg", "reason": "made up"}
            forged = await impostor.take_over(key)
            tasks = (
                {"event": "opened", "request": replace(lie, **own, revision=2)},
                {"event": "closed", "request": replace(request, **own, **ended)},
            )
            for number, task in enumerate(tasks):
                # Without a worker for such an activity, no notice can be sent by it.
                with suppress(WorkflowUpdateFailedError):
                    await asyncio.wait_for(forged.schedule("signoff.deliver", f"d{number}", task), 60)
            # Later notices have overtaken nothing: a true end, and one more question.
            await site.person("ana").approve(approval_id(other))
            later, _ = await asked(site, impostor, 77, to)
            await ears.told_of("77 EUR", to)
            assert later != other
            messages = "".join(ears.messages)
            assert (f"Pay {SMALL} EUR to {to}" in messages, "made up" in messages) == (False, False)
