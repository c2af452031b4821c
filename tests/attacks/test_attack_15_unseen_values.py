import asyncio
import html
import json
import re
import sys
from typing import Any

import pytest
from attack_site import AttackSite, Browser, approval_id, form_fields, payee, words

from signoff.contracts.ids import TurnKey

LINES = 300
LAST: dict[str, Any] = {"article": "consulting, see contract", "pieces": 99_999, "price": 1_000_000}
PAGES = 400


async def long_order(site: AttackSite, to: str) -> TurnKey:
    items = [{"article": f"pencil no. {n}", "pieces": 10, "price": 1} for n in range(1, LINES)]
    return await site.person("rui").ask([("order", {"items": [*items, LAST], "to": to})])


def has_last(text: str) -> bool:
    """Find the text of the last line: a card shows the greatest numbers of a list above it."""
    return LAST["article"] in text


async def all_pages(browser: Browser, approval: str) -> list[str]:
    start = f"/approvals/{approval}"
    waiting, seen, found = [start], {start}, []
    while waiting and len(seen) <= PAGES:
        answer = await browser.http.get(waiting.pop(0))
        found.append(words(answer.text))
        for link in re.findall(r'(?:href|src)="([^"#]+)', answer.text):
            path = html.unescape(link)
            if path.startswith(start) and path not in seen and "/edit" not in path:
                seen.add(path)
                waiting.append(path)
    return found


async def read_all(browser: Browser, approval: str) -> int:
    path, number = f"/approvals/{approval}/values", 0
    address = path
    while address.startswith(path):
        page = await browser.http.get(address)
        answer = await browser.http.post(path, data=form_fields(page.text, path))
        assert answer.status_code == 303
        address, number = answer.headers["location"], number + 1
    return number


async def test_card_with_unopened_values_cannot_be_approved_on_the_page(site: AttackSite) -> None:
    # The card's first page lacks the last line of the order, so its form approves nothing. Without the check of
    # `has_read` in `deciding._decide` the order was approved and ran.
    to, bo = payee(), await site.browser("bo")
    key = await long_order(site, to)
    await site.person("ana").waiting(approval_id(key))
    shown, fields = await bo.open(approval_id(key))
    assert not has_last(shown.words), "the whole order is on one page: send it as a longer one"
    await bo.send(approval_id(key), fields)
    after = await site.person("ana").see(approval_id(key))
    assert (after.view["state"], site.ledger(to)) == ("pending", [])


async def test_every_value_can_be_reached_from_the_card(site: AttackSite) -> None:
    # An approver who opens every page of the card reads the last line and can approve. With only the first page of
    # `ValuePages`, no page showed the last line.
    to, bo = payee(), await site.browser("bo")
    key = await long_order(site, to)
    await site.person("ana").waiting(approval_id(key))
    pages = await all_pages(bo, approval_id(key))
    assert any(has_last(text) for text in pages)
    assert all("Sum of 300 102,989 1,000,299" in text for text in pages if "Every value of this call" in text)
    _, fields = await bo.open(approval_id(key))
    await bo.send(approval_id(key), fields)
    assert site.ledger(to) == [], "the pages were shown, and not read to their end"
    assert await read_all(bo, approval_id(key)) == 2
    _, fields = await bo.open(approval_id(key))
    assert (await bo.send(approval_id(key), fields)).status_code == 303
    await site.person("rui").result(key)
    assert [line["items"] for line in site.ledger(to)] == [LINES]


async def test_api_shows_every_value(site: AttackSite) -> None:
    # The API view that binds an answer has the last line. Without the arguments in `whole_request` the last line was
    # missing.
    key = await long_order(site, payee())
    assert has_last((await site.person("ana").waiting(approval_id(key))).words)


@pytest.mark.parametrize("options", [pytest.param((), id="words"), pytest.param(("--json",), id="json")])
async def test_terminal_shows_every_value(options: tuple[str, ...], site: AttackSite) -> None:
    # `signoff show` prints the last line. Without every value in `card_lines` it was missing in the text, and without
    # the arguments in `whole_request` in both.
    key = await long_order(site, payee())
    await site.person("ana").waiting(approval_id(key))
    env = site.env("gateway") | {"SIGNOFF_TOKEN": site.tokens["ana"], "SIGNOFF_PUBLIC_URL": site.url}
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "signoff.cli.main", "show", approval_id(key), *options),
        cwd=site.folder,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await ran.communicate()
    assert ran.returncode == 0, err.decode()
    assert has_last(json.dumps(json.loads(out)) if options else out.decode())


async def test_batch_approves_no_card_with_unopened_values(site: AttackSite) -> None:
    # Selected with others in the inbox, the order is not approved by one tap. Without the checks of `has_read` in
    # `deciding._decide` and of `card.unseen` in `batch_pages._alone`, two layers of one defence, the order was
    # approved and ran.
    to, bo = payee(), await site.browser("bo")
    key = await long_order(site, to)
    shown = await site.person("ana").waiting(approval_id(key))
    page = await bo.http.get("/batch", params={"pick": approval_id(key)})
    fields = form_fields(page.text, "/batch")
    assert fields["shown"] == approval_id(key)
    await bo.http.post("/batch", data={**fields, "pick": approval_id(key), "verdict": "approved"})
    after = await site.person("ana").see(shown.view["id"])
    assert (after.view["state"], site.ledger(to)) == ("pending", [])
