from typing import Any

import pytest
from attack_site import AttackSite

ASKED: dict[str, Any] = {"text": "[]", "actor": "clerk"}


@pytest.mark.parametrize(
    ("person", "fields", "named"),
    [
        ("rui", {"context": {"vip": True}}, "`context.vip`"),
        ("rui", {"route": "refunds"}, "`route`"),
        ("rui", {"step": "2"}, "`step`"),
        ("rui", {"transient": ["pay"]}, "`transient`"),
        ("max", {"context": {"budget": 5, "vip": True}}, "`context.vip`"),
        ("max", {"context": {"budgets": 5}}, "`context.budgets`"),
        ("max", {"route": "refunds", "step": "2"}, "`route`"),
    ],
)
@pytest.mark.parametrize("path", ["turns", "sessions/attack-28/messages"])
async def test_undeclared_context_route_or_step_is_refused(
    site: AttackSite, path: str, person: str, fields: dict[str, Any], named: str
) -> None:
    # A token with the scope `start` and no declared rights is refused with the remedy. Without `may_set` each was
    # accepted, and a rule that lets VIPs' calls run applied to everyone.
    answer = await site.person(person).http.post(f"/v1/{path}", json={**ASKED, **fields})
    assert (answer.status_code, answer.json().get("code")) == (403, "not_allowed"), answer.text
    assert answer.json()["message"].startswith(f"{named} may not be set by requests of `{person}`")


async def test_declared_context_is_accepted(site: AttackSite) -> None:
    # Max may set the budget. With `may_set` ignored in `check_settable`, so that no requester may set anything, his
    # was refused.
    answer = await site.person("max").http.post("/v1/turns", json={**ASKED, "context": {"budget": 5}})
    assert answer.status_code == 201, answer.text
