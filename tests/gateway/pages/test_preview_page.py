from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
from gateway_login import answered, bearer, browser, locked_rig, sign_in, token_of, words
from gateway_rig import MONEY, PEOPLE, GatewayRig, gateway_rig
from some import some
from sqlalchemy import update
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool

from signoff.contracts.preview import (
    Code,
    Diff,
    Email,
    File,
    Image,
    Markdown,
    Sql,
    Table,
    Text,
)
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tables import BLOBS

PICTURE: Final = b"\x89PNG\r\n\x1a\n" + b"0" * 20
HOSTILE: Final = (
    "# Title\n\n**bold** [link](https://evil.example) ![image](https://evil.example/a.png)\n\n"
    "<script>alert(1)</script> &#x202e; <https://evil.example>\n\n- one\n\u202e- two"
)
LINES: Final = tuple(f"line {number}" for number in range(100))


class Previews:
    """The parts that the tool returns next."""

    def __init__(self) -> None:
        self.make: Callable[[], Any] = list

    async def preview(self, args: dict[str, Any], context: Any) -> Any:
        return self.make()


@pytest.fixture
def previews() -> Previews:
    return Previews()


@pytest.fixture
async def rig(client: Client, store: Store, task_queue: str, previews: Previews) -> AsyncIterator[GatewayRig]:
    def catalog(ledger: Ledger) -> Catalog:
        shown = {"preview": previews.preview, "effect": "Pay {amount} to {to}", "input_schema": MONEY}
        tools = [
            pay_tool(ledger, **shown),
            pay_tool(ledger, ApprovalPolicy(preview_required=True, edit="approve"), name="both", **shown),
            pay_tool(ledger, ApprovalPolicy(preview_for="requester"), name="easy", **shown),
        ]
        actors = [Actor(name="desk", model="scripted", description="Pays.")]
        return catalog_of(tools, actors=actors, people=PEOPLE)

    async with gateway_rig(client, store, task_queue, catalog_of_ledger=catalog) as found:
        yield found


async def card(rig: GatewayRig, approval: str, path: str = "") -> str:
    async with browser(rig) as page:
        answer = await page.get(f"/approvals/{approval}{path}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_card_shows_each_kind_of_part(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: [
        Text(title="Note", text="a\u202eb"),
        Code(title="Script", text="\tprint(1)", language="python"),
        Diff(title="Balance", before="70\n", after="50\n"),
        Table(title="Invoices", columns=("to", "amount"), rows=(("Ana", 1_000), ("Bo", 20.5))),
        Email(to=("ana@example.com",), subject="Invoice", text="Dear Ana"),
        Sql(statement="DELETE FROM a", plan="Delete on a"),
        File(path="/srv/a.txt", size=12_000, sha256="ab12"),
        Image(data=PICTURE, text="A chart"),
    ]
    approval = await rig.asked("pay")
    page = await card(rig, approval)
    shown = words(page)
    for text in (
        "Note a⟦U+202E⟧b",
        "print(1)",
        "Before: 70 After: 50",
        "1,000",
        "1,020.5",
        "ana@example.com",
        "DELETE FROM a",
        "Delete on a",
        "12,000",
        "ab12",
    ):
        assert text in shown, text
    assert "\u202e" not in page
    async with browser(rig) as client:
        picture = await client.get(f"/approvals/{approval}/preview/7")
        missing = await client.get(f"/approvals/{approval}/preview/0")
    assert (picture.status_code, picture.headers["content-type"], picture.content) == (200, "image/png", PICTURE)
    assert missing.status_code == 404
    assert f'src="/approvals/{approval}/preview/7" alt="A chart"' in page


async def test_table_sums_each_currency_and_no_numbers_of_orders(rig: GatewayRig, previews: Previews) -> None:
    rows = ((12345678, 1_000, "EUR"), (12345679, 20.5, "JPY"), (12345680, 500, "EUR"))
    previews.make = lambda: Table(title="Orders", columns=("Order no", "Amount", "Currency"), rows=rows)
    shown = words(await card(rig, await rig.asked("pay")))
    assert "12345678 1,000 EUR" in shown
    assert "Sum of 3 1,500 EUR, 20.5 JPY" in shown


async def test_markdown_has_no_links_images_or_html(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: Markdown(text=HOSTILE)
    page = await card(rig, await rig.asked("pay"))
    part = page[page.index('class="prose"') :]
    part = part[: part.index("</section>")]
    assert "<h4>Title</h4>" in part
    assert "<strong>bold</strong>" in part
    for forbidden in ("<a ", "<img", "<script", "\u202e", "<h1"):
        assert forbidden not in part, forbidden
    assert "&lt;script&gt;" in part
    assert "&amp;#x202e;" in part
    assert "⟦U+202E⟧- two" in part


async def test_long_part_is_shown_whole_on_its_own_page(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: Text(text="\n".join(LINES))
    approval = await rig.asked("pay")
    page = await card(rig, approval)
    assert "line 11" in page
    assert "line 12" not in page
    assert "Show 88 more lines" in page
    assert f'href="/approvals/{approval}/preview"' in page
    assert "line 99" in await card(rig, approval, "/preview")


async def test_fault_is_a_sentence_and_a_required_preview_refuses_approval(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: "no part"
    approval = await rig.asked("both")
    shown = words(await card(rig, approval))
    assert "There is no preview: the tool returned none that can be shown." in shown
    assert "Without a preview it cannot be approved." in shown
    async with browser(rig) as page:
        refused = await answered(page, approval, verdict="approved")
    assert "an approval needs a preview, and there is none" in words(refused.text)
    assert (await rig.request(approval)).state == "pending"
    api = await rig.decide(approval, verdict="approved", revision=1)
    assert (api.status_code, api.json()["code"]) == (403, "not_allowed")
    denied = await rig.decide(approval, verdict="denied", revision=1)
    assert denied.status_code == 200


async def test_effect_is_read_by_approvers_alone(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: Text(name="a", text="secret balance")
    approval = await rig.asked("pay", user="guest")
    locked = locked_rig(rig)
    found: dict[str, Any] = {}
    for person in ("ana", "guest"):
        headers = bearer(await token_of(locked, person))
        found[person] = await locked.http.get(f"/v1/approvals/{approval}/effect", headers=headers)
    assert found["ana"].json()["parts"] == [{"name": "a", "title": "", "kind": "text", "text": "secret balance"}]
    assert len(found["ana"].json()["sha256"]) == 64
    assert (found["guest"].status_code, found["guest"].json()["code"]) == (403, "not_allowed")
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "guest"))
        own = await page.get(f"/approvals/{approval}")
        hidden = await page.get(f"/approvals/{approval}/preview")
    assert own.status_code == 200
    assert "secret balance" not in own.text
    assert hidden.status_code == 404


async def test_requester_sees_a_preview_that_the_policy_shows_them(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: Text(text="the new balance")
    approval = await rig.asked("easy", user="guest")
    locked = locked_rig(rig)
    headers = bearer(await token_of(locked, "guest"))
    found = await locked.http.get(f"/v1/approvals/{approval}/effect", headers=headers)
    assert found.json()["parts"][0]["text"] == "the new balance"


async def test_parts_that_were_changed_in_the_store_are_not_shown(rig: GatewayRig, previews: Previews) -> None:
    previews.make = lambda: Text(text="x" * 20_000)
    approval = await rig.asked("pay")
    question = some(await Questions(rig.deps.store).read(approval)).latest
    blob = some(some(some(question.preview).parts).blob).sha256
    await rig.deps.store.run(
        lambda connection: connection.execute(update(BLOBS).where(BLOBS.c.sha256 == blob).values(body=b"[]"))
    )
    found = await rig.http.get(f"/v1/approvals/{approval}/effect")
    assert found.status_code == 503
    assert "changed in the store" in found.text


async def test_card_without_the_required_preview_approves_nothing(rig: GatewayRig, previews: Previews) -> None:
    """Cards in chats, and decisions of a batch, show no preview."""
    previews.make = lambda: Text(text="the new balance")
    approval = await rig.asked("both")
    request = await rig.request(approval)
    item = {"approval_id": approval, "revision": 1, "question_hash": request.question_hash, "verdict": "approved"}
    answer = await rig.http.post("/v1/approvals/decide", json={"decisions": [item]})
    assert [(each["code"], each["why"]) for each in answer.json()["receipts"]] == [("malformed", "unseen")]
    assert (await rig.request(approval)).state == "pending"


async def test_editor_of_a_call_with_a_required_preview_does_not_approve_it(
    rig: GatewayRig, previews: Previews
) -> None:
    """They have not seen the preview of the edited call."""
    previews.make = lambda: Text(text="the new balance")
    approval = await rig.asked("both")
    edited = await rig.decide(
        approval, verdict="approved", revision=1, edited_args={"amount": 10, "currency": "EUR", "to": "Ana"}
    )
    assert edited.status_code == 200, edited.text
    request = await rig.request(approval)
    assert (request.revision, request.state, request.votes) == (2, "pending", ())
    assert some(request.preview).sha256
