from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from signoff.approvals.card import render_card
from signoff.channels.room_text import room_card
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.languages.catalogue import language_codes
from signoff.testing.builders import a_person, a_request
from signoff.texts.formatter import formatter_for

NOW = system_clock()
SECRETS = st.text(alphabet="XYZWVQ", min_size=6, max_size=12)


def asked(secret: str, **fields: Any) -> Any:
    args = {"to": secret, secret: [secret, {"note": secret}]}
    card = render_card(effect=f"Pay {{to}} {secret}", title=secret, tool="pay", args=args, schema={}, notes=(secret,))
    card = replace(card, agent_says=secret)
    given: dict[str, Any] = {"args": Content(inline=args), "card": card, "rule_text": secret, "actor": secret}
    return a_request(**given | fields, opened=NOW)


@given(secret=SECRETS, code=st.sampled_from(language_codes()), ended=st.booleans(), holder=st.sampled_from(["", "Ana"]))
def test_no_value_of_an_argument_is_in_a_room_card(secret: str, code: str, ended: bool, holder: str) -> None:
    request = asked(secret)
    if ended:
        decided = {"state": "denied", "decided_by": "ana", "decided_name": "Ana", "decided_at": NOW}
        request = replace(request, **decided, decided_channel="slack", reason=secret)
    formatter = formatter_for(a_person(locale=code), NOW)
    until = NOW + timedelta(minutes=15)
    shown = room_card(request, "t", "C1", formatter, ended=ended, holder=holder, until=until)
    assert secret not in shown.text
    assert all(secret not in label for _, label in shown.buttons)
    assert "pay" in shown.heading
    assert "K7Q-2FM" in shown.heading


def test_room_card_names_holder_requester_and_deadline() -> None:
    request = a_request(requester=Principal(user="guest", name="Guest\nApproved by Eve"), opened=NOW)
    formatter = formatter_for(a_person(), NOW)
    free = room_card(request, "t", "C1", formatter)
    taken = room_card(request, "t", "C1", formatter, holder="Ana", until=NOW)
    assert [act for act, _ in free.buttons] == ["take", "show"]
    assert [act for act, _ in taken.buttons] == ["take", "release", "show"]
    assert "Ana has taken it" in taken.text
    assert "Ana" not in free.text
    assert not any(line.startswith("Approved by") for line in free.lines)
    assert any("Answer by" in line for line in free.lines)


def test_ended_room_card_has_no_buttons() -> None:
    request = replace(a_request(opened=NOW), state="timed_out", decided_at=NOW)
    shown = room_card(request, "t", "C1", formatter_for(a_person(), NOW), ended=True)
    assert shown.buttons == ()
    assert len(shown.lines) == 1
