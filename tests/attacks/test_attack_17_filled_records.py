"""Attack 17: whoever has a token tries in vain to answer somebody else's request, again and again, into its record.

Seen before the mend: each of 100 tries was a row in the record of a turn of somebody else. Seen to fail without it:
with `AttemptRecords.note` in `gateway/audit_writer.py` writing down every one.
"""

from typing import Any

from attack_site import AttackSite, approval_id, payee, until

from signoff.contracts.limits import ATTEMPTS_A_MINUTE

TRIES = 100


async def counts(site: AttackSite, name: str) -> dict[str, int]:
    """What somebody reads of how much was refused."""
    found: dict[str, int] = (await site.person(name).http.get("/readyz")).json().get("refused", {})
    return found


async def test_refused_tries_are_counted_and_few_of_them_written_down(site: AttackSite) -> None:
    # At most so many a minute; the rest is told by the next one that is, and in readiness. With `AttemptRecords.note`
    # writing down every one 100 were in the record, and with it counting none the counts stayed as they were.
    before = sum((await counts(site, "adm")).values())
    rui, zoe = site.person("rui"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 3, "to": payee()})])
    shown = await rui.waiting(approval_id(key))
    for _ in range(TRIES):
        answer = await zoe.decide(shown)
        assert answer.status_code in (403, 404)
    attempts = [row for row in await site.person("aud").record(key) if row["kind"] == "attempt"]
    # Two minutes may have passed through.
    assert len(attempts) <= 2 * ATTEMPTS_A_MINUTE

    async def counted() -> Any:
        return sum((await counts(site, "adm")).values()) >= before + TRIES

    await until(counted)


async def test_nobody_but_operators_is_told_how_much_was_refused(site: AttackSite) -> None:
    # Else the counts would say what became of each thing that is tried. With `_may_count` not asked Zoe was told the
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
