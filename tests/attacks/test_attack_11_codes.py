"""Attack 11: a request's short code is chosen by who asks, or comes to mean another request."""

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
    """The code that once was computed from an approval's id: whoever chooses the id can try until it suits."""
    number = int.from_bytes(hashlib.sha256(approval.encode()).digest()[:4], "big") >> 2
    return "".join(_LETTERS[(number >> (5 * place)) & 31] for place in reversed(range(6)))


async def test_who_asks_cannot_choose_the_code(site: AttackSite) -> None:
    # Rui tries names of turns until the code begins with a word of his; the request's code is none of that. With the
    # code computed from the approval's id in `Questions.ask`, as it was once, it began with Rui's word.
    session, to = uuid.uuid4().hex[:12], payee()
    own = own_session(SessionKey("main", session), Person(id="rui"), development=False).session
    tried = (TurnKey("main", own, f"t{number}") for number in range(1_000_000))
    key = next(each for each in tried if computed(approval_id(each)).startswith("YES"))
    asked = await site.person("rui").ask([("pay", {"amount": 9, "to": to})], session=session, turn=key.turn)
    assert asked == key
    shown = await site.person("ana").waiting(approval_id(key))
    assert shown.view["code"] != computed(approval_id(key))


async def test_no_word_of_a_language_is_a_code(site: AttackSite) -> None:
    # Two places of every code are digits, always the same two. With any of 32 characters in every place in `new_code`
    # no place was a digit in all of them.
    to = payee()
    key = await site.person("rui").ask([("pay", {"amount": n, "to": to}) for n in range(1, 17)])
    ana = site.person("ana")
    codes = [(await ana.waiting(approval_id(key, f"c1.{n}"))).view["code"] for n in range(1, 17)]
    places = [place for place in range(6) if all(code[place].isdigit() for code in codes)]
    assert (len(set(codes)), len(places)) == (16, 2)


async def test_a_code_means_the_request_that_it_was_given_to(site: AttackSite, impostor: Impostor) -> None:
    # A turn that claims a code of another's in its memo changes nothing of what the code means. With the memos of turns
    # believed in `Conversations.approval_id` Ana was answered 404 for the code.
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
    # The question is there before the turn says that it waits: its attributes of before would never be found.
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
