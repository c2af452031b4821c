"""Another answer by the same page, link or key is another answer."""

from typing import Any

import pytest
from gateway_rig import GatewayRig


@pytest.mark.parametrize("first", ["approved", "denied"])
async def test_a_second_thought_by_the_same_key_counts(gateway: GatewayRig, first: str) -> None:
    """Two have to agree: one says yes and, by the same key, no; it is denied. The same twice is one answer.

    Without `_with_own_delivery` the second was taken for the first once more, and the yes stayed.
    """
    approval = await gateway.asked("both")
    other = "denied" if first == "approved" else "approved"
    key = {"Idempotency-Key": "one-page"}

    async def decide(verdict: str) -> Any:
        url = f"/v1/approvals/{approval}/decide?as=ana"
        return (await gateway.http.post(url, json={"verdict": verdict}, headers=key)).json()

    assert (await decide(first))["status"] in ("counted", "accepted")
    repeated = await decide(first)
    assert repeated["code"] == "duplicate"
    await decide(other)
    assert (await gateway.request(approval)).state == "denied"
