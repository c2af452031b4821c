import asyncio
import uuid

import pytest
from aap_rig import adapter, asking
from agentapprovalprotocol import ConflictError
from call_rig import call_rig, second_gateway
from temporalio.client import Client

from signoff.store.store import open_store


@pytest.mark.postgres
async def test_one_of_racing_adapters_uses_an_approval(client: Client, postgres_url: str, task_queue: str) -> None:
    async with open_store(postgres_url) as store, call_rig(client, store, task_queue) as agent:
        other = second_gateway(agent)
        async with other.http, adapter(agent) as first, adapter(other) as second:
            both = (first, second)
            body, key = asking(), uuid.uuid4().hex
            same = await asyncio.gather(*(both[number % 2].ask(body, key) for number in range(10)))
            assert len({each.id for each in same}) == 1
            name = await first.decide(body["arguments"])
            uses = [both[number % 2].client.consume(same[0].id, f"use-{number}") for number in range(10)]
            found = await asyncio.gather(*uses, return_exceptions=True)
            refused = [str(each) for each in found if isinstance(each, Exception)]
            assert refused == ["AAP conflict: already_consumed"] * 9
            done = await second.client.report_outcome(same[0].id, "succeeded", "refunded")
            assert await first.client.get(same[0].id) == done
            assert [kind for kind, _ in await agent.record(name)].count("execution") == 1

            asked = await second.ask(asking())
            changed = {"order": asked.arguments["order"], "euro": 150}
            await second.decide(asked.arguments, edited_args=changed)
            assert (await second.client.get(asked.id)).status == "denied"
            body = asking() | {"arguments": changed}
            again = await asyncio.gather(*(both[number % 2].ask(body) for number in range(6)))
            assert sorted(each.status for each in again) == ["approved", *["pending"] * 5]
            [approved] = [each for each in again if each.status == "approved"]
            await first.client.consume(approved.id, "use-1")
            with pytest.raises(ConflictError, match="already_consumed"):
                await second.client.consume(approved.id, "use-2")
