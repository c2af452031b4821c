"""A turn that asks more than its memo can list loses no question: each is listed by the time those before it are."""

from typing import Any

from desk_fixtures import ApprovalPolicy, Bench, Ledger, bench, catalog_of, no, pay_tool, yes
from temporalio.client import Client

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import EFFECT_CHARS
from signoff.contracts.person import Principal
from signoff.store.store import Store
from signoff.testing.scripted import calls, respond
from signoff.workflows import shown

MANY = 30


async def _listed(desk: Bench, key: TurnKey) -> list[dict[str, Any]]:
    """The open cards that an inbox finds: in the memo, and with their code among the open ones."""
    described = await desk.client.get_workflow_handle(key.workflow_id).describe()
    codes = set(described.typed_search_attributes.get(shown.CODES) or ())
    return [card for card in (await described.memo())[names.MEMO_CARDS] if card["code"] in codes]


async def test_who_answers_only_what_is_listed_answers_everything(
    client: Client, store: Store, task_queue: str
) -> None:
    """Rows that had no room at first take the place of those that were answered, so the turn ends."""
    ledger = Ledger()
    approvers = ("role:approvers", *(f"user:{'x' * 44}{n:04}" for n in range(30)))
    tools = [pay_tool(ledger, ApprovalPolicy(approvers=approvers), name=name) for name in ("pay", "wire")]
    many = [("pay" if n % 2 else "wire", {"amount": n}) for n in range(MANY)]
    answered: set[str] = set()
    async with bench(client, store, task_queue, catalog_of(tools), [calls(*many), respond("done")]) as desk:
        key = await desk.start()
        await desk.suspended(key)
        assert len(await _listed(desk, key)) < MANY
        while len(answered) < MANY:
            open_cards = [card for card in await _listed(desk, key) if card["id"] not in answered]
            assert open_cards, f"{MANY - len(answered)} requests wait and none is listed"
            call = ".".join(open_cards[0]["id"].split(".")[-2:])
            receipt = await desk.signoff.decide((yes if len(answered) % 2 else no)(key, call))
            assert receipt.status == "accepted"
            answered.add(open_cards[0]["id"])
        result = await desk.signoff.result(key)
    assert result.state == "complete"
    assert len(ledger.rows) == MANY // 2


def _request(number: int, **fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "id": f"main.{'s' * 40}.{'t' * 40}.c1.{number}",
        "code": f"K{number:05}",
        "digest": "d",
        "definition": "d",
        "tenant": "main",
        "session": "s",
        "turn": "t",
        "actor": "desk",
        "call": f"c1.{number}",
        "tool": "pay",
        "args": Content(inline={}),
        "card": Card(effect="€" * EFFECT_CHARS),
        "rule": "always",
        "policy_hash": "h",
        "approvers": ("role:approvers",),
        "requester": Principal(user="guest", name="Guest"),
    }
    return ApprovalRequest(**given | fields)


def test_effects_are_cut_shorter_before_a_card_is_left_out() -> None:
    """Few cards keep their words; of many, every one is listed with fewer."""
    few, many = shown.memo([_request(n) for n in range(3)]), shown.memo([_request(n) for n in range(40)])
    assert {len(row["effect"]) for row in few} == {EFFECT_CHARS}
    assert len(many) == 40
    assert {len(row["effect"]) for row in many} < {20, 60}


def test_only_a_question_that_now_finds_room_is_reason_to_write_again() -> None:
    """Nothing missing, or still no room: no event; room for one that was left out: one."""
    requests = [_request(n, approvers=("role:" + "r" * 4_000,)) for n in range(9)]
    listed = {row["id"] for row in shown.memo(requests)}
    assert 0 < len(listed) < 9
    assert not shown.unlisted(requests, listed)
    answered = [requests[0].model_copy(update={"state": "denied"}), *requests[1:]]
    assert shown.unlisted(answered, listed)
    assert not shown.unlisted(answered, {request.id for request in requests})
