import hashlib
import uuid

from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor
from temporalio.client import WorkflowExecutionDescription
from temporalio.common import TypedSearchAttributes

from signoff.contracts import names
from signoff.contracts.ids import SessionKey, TurnKey, show_code
from signoff.contracts.person import Person
from signoff.gateway.session_names import own_session
from signoff.workflows import temporal_metadata

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def computed(approval: str) -> str:
    """Return the former code, computed from an approval's id: a requester could try ids until one fits."""
    number = int.from_bytes(hashlib.sha256(approval.encode()).digest()[:4], "big") >> 2
    return "".join(_LETTERS[(number >> (5 * place)) & 31] for place in reversed(range(6)))


async def test_requester_cannot_choose_the_code(site: AttackSite) -> None:
    # Rui tries turn names until the code begins with his word, but the request's code differs. With the code computed
    # from the approval's id in `Questions.ask`, as before, it began with Rui's word.
    session, to = uuid.uuid4().hex[:12], payee()
    own = own_session(SessionKey("main", session), Person(id="rui"), development=False).session
    tried = (TurnKey("main", own, f"t{number}") for number in range(1_000_000))
    key = next(each for each in tried if computed(approval_id(each)).startswith("YES"))
    asked = await site.person("rui").ask([("pay", {"amount": 9, "to": to})], session=session, turn=key.turn)
    assert asked == key
    shown = await site.person("ana").waiting(approval_id(key))
    assert shown.view["code"] != computed(approval_id(key))


async def test_every_code_has_two_digits_at_fixed_places(site: AttackSite) -> None:
    # Two places of every code are digits, always the same two. With any of 32 characters in every place in `new_code`
    # no place was always a digit.
    to = payee()
    key = await site.person("rui").ask([("pay", {"amount": n, "to": to}) for n in range(1, 17)])
    ana = site.person("ana")
    codes = [(await ana.waiting(approval_id(key, f"c1.{n}"))).view["code"] for n in range(1, 17)]
    places = [place for place in range(6) if all(code[place].isdigit() for code in codes)]
    assert (len(set(codes)), len(places)) == (16, 2)


async def test_code_stays_with_its_request_despite_a_forged_memo(site: AttackSite, impostor: Impostor) -> None:
    # A turn that claims another's code in its memo does not change the code's request. With the memos of turns
    # believed in `Conversations.approval_id` Ana got 404 for the code.
    to, ana = payee(), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})])
    shown = await ana.waiting(approval_id(key))
    code, handle = shown.view["code"], site.client.get_workflow_handle(key.workflow_id)

    async def listed() -> bool:
        return (await ana.see(show_code(code))).status == 200

    async def suspended() -> WorkflowExecutionDescription | None:
        found = await handle.describe()
        return found if found.typed_search_attributes.get(temporal_metadata.STATE) == "suspended" else None

    await until(listed)
    # The question exists before the turn is marked as waiting, and its earlier attributes would not be found.
    described = await until(suspended)
    memo, attributes = await described.memo(), described.typed_search_attributes
    other = TurnKey("main", uuid.uuid4().hex[:12], "t1")
    cards = [{"id": approval_id(other), "code": code, "approvers": ["role:approvers"]}]
    kept = TypedSearchAttributes([each for each in attributes if each.key.name.startswith("Signoff")])
    await impostor.stand(other, memo={**memo, "signoff_cards": cards}, attributes=kept)

    async def seen() -> bool:
        query = f'WorkflowId = "{other.workflow_id}" AND {names.SA_STATE} = "suspended"'
        return (await site.client.count_workflows(query)).count == 1

    await until(seen)
    found = await ana.see(show_code(code))
    assert (found.status, found.view.get("id")) == (200, approval_id(key))
