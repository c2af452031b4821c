"""Before the fix each of 100 attempts was an entry in the log of another's turn."""

from typing import Any

from attack_site import AttackSite, approval_id, payee, until

from signoff.contracts.limits import ATTEMPTS_A_MINUTE

TRIES = 100


async def counts(site: AttackSite, name: str) -> dict[str, int]:
    found: dict[str, int] = (await site.person(name).http.get("/readyz")).json().get("refused", {})
    return found


async def test_refused_attempts_are_counted_and_few_are_recorded(site: AttackSite) -> None:
    # At most a few per minute are recorded; the next entry and readiness report the rest. With `AttemptRecords.note`
    # recording each, 100 were in the audit log, and with it counting none the counts did not change.
    before = sum((await counts(site, "adm")).values())
    rui, zoe = site.person("rui"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 3, "to": payee()})])
    shown = await rui.waiting(approval_id(key))
    for _ in range(TRIES):
        answer = await zoe.decide(shown)
        assert answer.status_code in (403, 404)
    attempts = [row for row in await site.person("aud").record(key) if row["kind"] == "attempt"]
    # The attempts may span two minutes.
    assert len(attempts) <= 2 * ATTEMPTS_A_MINUTE

    async def counted() -> Any:
        return sum((await counts(site, "adm")).values()) >= before + TRIES

    await until(counted)


async def test_refusal_counts_are_shown_only_to_administrators(site: AttackSite) -> None:
    # Otherwise the counts would reveal the result of each attempt. Without the check of `_may_count` Zoe read the
    # counts.
    key = await site.person("rui").ask([("pay", {"amount": 3, "to": payee()})])
    await site.person("zoe").decide(await site.person("rui").waiting(approval_id(key)))

    async def counted() -> Any:
        return await counts(site, "adm")

    await until(counted)
    assert await counts(site, "zoe") == {}
    assert await counts(site, "ana") == {}
    async with site.person("zoe").http as http:
        nobody = await http.get("/readyz", headers={"authorization": ""})
        wrong = await http.get("/readyz", headers={"authorization": "Bearer sgf_nonsense"})
    assert nobody.status_code in (200, 401)
    assert "refused" not in nobody.json()
    assert wrong.status_code == 401
