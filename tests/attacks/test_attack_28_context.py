"""Attack 28: whoever may start a turn sets what rules read of it, and on which route and step it begins."""

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
async def test_nobody_sets_what_they_may_not(
    site: AttackSite, path: str, person: str, fields: dict[str, Any], named: str
) -> None:
    # A token with the scope `start` and nothing declared of its person: refused in a sentence that says what to do.
    # Without `may_set` each was taken, and a rule that lets VIPs' calls run was everybody's.
    answer = await site.person(person).http.post(f"/v1/{path}", json={**ASKED, **fields})
    assert (answer.status_code, answer.json().get("code")) == (403, "not_allowed"), answer.text
    assert answer.json()["message"].startswith(f"{named} may not be set by requests of `{person}`")


async def test_what_is_declared_may_be_set(site: AttackSite) -> None:
    # Max may say the budget. With `may_set` passed over in `check_settable`, so that nobody may set anything, his was
    # refused.
    answer = await site.person("max").http.post("/v1/turns", json={**ASKED, "context": {"budget": 5}})
    assert answer.status_code == 201, answer.text
