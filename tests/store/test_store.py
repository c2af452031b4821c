import asyncio
import hashlib
import subprocess
import sys
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from some import some

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.errors import Refused, StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.formats.replace import replace
from signoff.store.blobs import preview
from signoff.store.store import Store, open_store
from signoff.store.tickets import Claim, ticket_key

KEY = "a" * 64
HERE = SessionKey("main", "s")
WHO = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "book_flight"}
BOOKED = CallOutcome(call="c1.1", tool="book_flight", code="ok", value=Content(inline="gebucht ✈ \0 ünï"))
FAILED = CallOutcome(call="c1.1", tool="book_flight", code="execution_failed")

_CLAIMER = """
import asyncio, os, sys
from signoff.store.store import open_store
async def main():
    async with open_store(sys.argv[1]) as store:
        sys.stdin.readline()
        claim = await store.claim(sys.argv[2], workflow="turn/main/s/t", call="c1.1", tool="t", owner=str(os.getpid()))
        print(claim.kind, flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""


def claimer(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CLAIMER, url, KEY]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_first_claim_is_fresh_and_the_next_one_finds_it_open(store: Store) -> None:
    assert await store.claim(KEY, **WHO) == Claim(kind="fresh")
    assert await store.claim(KEY, **WHO) == Claim(kind="open")


async def test_fifty_concurrent_claimers_get_one_fresh_ticket(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        claims = await asyncio.gather(*((store, second)[n % 2].claim(KEY, **WHO) for n in range(50)))
    assert Counter(claim.kind for claim in claims) == {"fresh": 1, "open": 49}


async def test_claimers_in_several_processes_get_one_fresh_ticket(store_url: str) -> None:
    processes = [claimer(store_url) for _ in range(3)]
    for process in processes:
        go(process)
    kinds = [next_line(process) for process in processes]
    for process in processes:
        process.communicate("\n")
    assert Counter(kinds) == {"fresh": 1, "open": 2}


async def test_killed_claimer_leaves_its_ticket_open(store: Store, store_url: str) -> None:
    process = claimer(store_url)
    go(process)
    assert next_line(process) == "fresh"
    process.kill()
    process.communicate()
    assert await store.claim(KEY, **WHO) == Claim(kind="open", owner=str(process.pid))
    ticket = some(await store.read_ticket(KEY))
    assert (ticket.state, ticket.owner) == ("claimed", str(process.pid))


async def test_recorded_outcome_is_returned_to_later_claimers(store: Store) -> None:
    await store.claim(KEY, **WHO)
    assert await store.record(KEY, BOOKED) == BOOKED
    assert await store.claim(KEY, **WHO) == Claim(kind="done", outcome=BOOKED)
    assert await store.void_unclaimed(KEY, **WHO) == Claim(kind="done", outcome=BOOKED)


async def test_first_recorded_outcome_is_final(store: Store) -> None:
    await store.claim(KEY, **WHO)
    await store.record(KEY, BOOKED)
    assert await store.record(KEY, FAILED) == BOOKED
    assert await store.claim(KEY, **WHO) == Claim(kind="done", outcome=BOOKED)


async def test_concurrent_records_agree_on_one_outcome(store: Store) -> None:
    await store.claim(KEY, **WHO)
    answers = await asyncio.gather(*(store.record(KEY, (BOOKED, FAILED)[n % 2]) for n in range(10)))
    assert len({outcome.code for outcome in answers}) == 1


@pytest.mark.parametrize("voided", [False, True])
async def test_outcome_without_a_claim_is_refused(store: Store, voided: bool) -> None:
    if voided:
        await store.void_unclaimed(KEY, **WHO)
    with pytest.raises(Refused):
        await store.record(KEY, BOOKED)
    assert (await store.read_ticket(KEY) is not None) is voided


async def test_voided_ticket_is_never_claimed(store: Store) -> None:
    assert await store.void_unclaimed(KEY, **WHO) == Claim(kind="void")
    assert await store.void_unclaimed(KEY, **WHO) == Claim(kind="void")
    assert await store.claim(KEY, **WHO) == Claim(kind="void")
    assert await store.claim(ticket_key(KEY, 2), **WHO) == Claim(kind="fresh")


async def test_claimed_ticket_is_not_voided_as_unclaimed(store: Store) -> None:
    await store.claim(KEY, **WHO)
    assert await store.void_unclaimed(KEY, **WHO) == Claim(kind="open")
    assert await store.record(KEY, BOOKED) == BOOKED


async def test_undone_ticket_leaves_the_next_one_free(store: Store) -> None:
    await store.claim(KEY, **WHO)
    for _ in range(2):
        assert await store.void_claimed(KEY) == Claim(kind="undone")
    assert await store.claim(KEY, **WHO) == Claim(kind="undone")
    assert await store.void_unclaimed(KEY, **WHO) == Claim(kind="undone")
    ticket = some(await store.read_ticket(KEY))
    assert (ticket.state, ticket.finished_at is not None) == ("void", True)
    assert await store.claim(ticket_key(KEY, 2), **WHO) == Claim(kind="fresh")


async def test_only_a_claimed_ticket_can_be_undone(store: Store) -> None:
    with pytest.raises(Refused, match="an unclaimed ticket"):
        await store.void_claimed(KEY)
    await store.void_unclaimed(KEY, **WHO)
    assert await store.void_claimed(KEY) == Claim(kind="void")
    done = ticket_key(KEY, 2)
    await store.claim(done, **WHO)
    await store.record(done, BOOKED)
    assert await store.void_claimed(done) == Claim(kind="done", outcome=BOOKED)


async def test_late_outcome_of_a_slow_claimer_is_accepted(store: Store) -> None:
    await store.claim(KEY, **WHO)
    await store.void_claimed(KEY)
    unknown = replace(BOOKED, code="in_doubt")
    assert await store.record(KEY, unknown) == unknown
    assert await store.claim(KEY, **WHO) == Claim(kind="undone")
    assert await store.record(KEY, BOOKED) == BOOKED
    assert await store.claim(KEY, **WHO) == Claim(kind="done", outcome=BOOKED)
    assert await store.record(KEY, FAILED) == BOOKED


async def test_claim_against_void_has_one_winner(store: Store) -> None:
    for number in range(10):
        key = ticket_key(KEY, number + 1)
        claim, void = await asyncio.gather(store.claim(key, **WHO), store.void_unclaimed(key, **WHO))
        assert (claim.kind, void.kind) in {("fresh", "open"), ("void", "void")}


async def test_later_outcome_replaces_an_unknown_one(store: Store) -> None:
    unknown = replace(BOOKED, code="in_doubt")
    await store.claim(KEY, **WHO)
    assert await store.record(KEY, unknown) == unknown
    assert await store.record(KEY, replace(unknown, note="still")) == unknown
    assert await store.record(KEY, BOOKED) == BOOKED
    assert await store.record(KEY, replace(BOOKED, note="twice")) == BOOKED
    assert await store.record(KEY, unknown) == BOOKED
    assert await store.claim(KEY, **WHO) == Claim(kind="done", outcome=BOOKED)


async def test_only_one_action_begins_under_a_call(store: Store) -> None:
    # Another digest is turned away while one is claimed or done; the next ticket of the same digest is not. A turn of
    # the same id whose principal has another nonce is another turn.
    other, third = "b" * 64, "c" * 64
    assert await store.claim(KEY, **WHO, nonce="n") == Claim(kind="fresh")
    assert await store.claim(other, **WHO, nonce="n") == Claim(kind="other")
    assert await store.read_ticket(other) is None
    assert await store.claim(ticket_key(KEY, 2), **WHO, nonce="n") == Claim(kind="fresh")
    await store.record(KEY, BOOKED)
    assert await store.claim(ticket_key(other, 2), **WHO, nonce="n") == Claim(kind="other")
    assert await store.claim(other, **WHO | {"call": "c1.2"}, nonce="n") == Claim(kind="fresh")
    assert await store.claim(third, **WHO, nonce="a year later") == Claim(kind="fresh")


async def test_undone_action_makes_room_for_another(store: Store) -> None:
    other, third = "b" * 64, "c" * 64
    await store.void_unclaimed(KEY, **WHO)
    assert await store.claim(other, **WHO) == Claim(kind="fresh")
    await store.void_claimed(other)
    assert await store.claim(third, **WHO) == Claim(kind="fresh")


async def test_concurrent_claims_under_one_call_have_one_winner(store: Store, store_url: str) -> None:
    """Even if their digests differ, so that none waits for the row of another."""
    async with open_store(store_url) as second:
        keys = [f"{number:064x}" for number in range(12)]
        claims = (((store, second)[number % 2]).claim(key, **WHO) for number, key in enumerate(keys))
        kinds = [claim.kind for claim in await asyncio.gather(*claims)]
    assert sorted(kinds) == ["fresh", *["other"] * 11]


async def test_ticket_of_another_turn_is_neither_voided_nor_read(store: Store) -> None:
    stranger = WHO | {"workflow": "turn/main/stranger/t"}
    assert await store.void_unclaimed(KEY, **stranger) == Claim(kind="void")
    assert await store.claim(KEY, **WHO, owner="worker-1", nonce="n") == Claim(kind="fresh")
    ticket = some(await store.read_ticket(KEY))
    assert (ticket.workflow, ticket.owner, ticket.nonce, ticket.state) == (WHO["workflow"], "worker-1", "n", "claimed")
    await store.record(KEY, BOOKED)
    assert await store.void_unclaimed(KEY, **stranger) == Claim(kind="other")
    assert await store.claim(KEY, **stranger) == Claim(kind="other")
    assert await store.claim(KEY, **WHO, nonce="n") == Claim(kind="done", outcome=BOOKED, owner="worker-1")


async def test_ticket_records_owner_and_times_by_the_store_clock(store: Store) -> None:
    assert await store.read_ticket(KEY) is None
    await store.claim(KEY, **WHO, owner="worker-1")
    await store.record(KEY, BOOKED)
    await store.claim(ticket_key(KEY, 2), **WHO)
    first, second = await store.read_ticket(KEY), await store.read_ticket(ticket_key(KEY, 2))
    assert first is not None
    assert second is not None
    assert first.model_dump(include={"workflow", "call", "tool", "owner", "state"}) == {
        **WHO,
        "owner": "worker-1",
        "state": "done",
    }
    assert first.finished_at is not None
    assert first.claimed_at <= first.finished_at <= second.claimed_at
    assert second.finished_at is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(body=st.binary(max_size=2_000) | st.text().map(lambda text: f'"{text}"'.encode(errors="replace")))
def test_preview_never_fails_and_is_short(body: bytes) -> None:
    shown = preview(body)
    assert len(shown) <= 200
    shown.encode()


async def test_blob_is_returned_whole_and_kept_once(store: Store) -> None:
    body = ('"' + "größe 東京 " * 100_000 + '"').encode()
    first, second = await asyncio.gather(store.put_blob(body, HERE), store.put_blob(body, HERE))
    assert first == second
    assert (first.sha256, first.size) == (hashlib.sha256(body).hexdigest(), len(body))
    assert first.preview == ("größe 東京 " * 100)[:200]
    assert await store.get_blob(first.sha256) == body
    assert await store.get_blob("0" * 64) is None


async def test_all_data_survives_reopening(store_url: str) -> None:
    async with open_store(store_url) as store:
        await store.claim(KEY, **WHO)
        await store.record(KEY, BOOKED)
        blob = await store.put_blob(b"[1]", HERE)
        secret = await store.secret_key("marks")
    async with open_store(store_url, durable=True) as store:
        assert (await store.claim(KEY, **WHO)).outcome == BOOKED
        assert await store.get_blob(blob.sha256) == b"[1]"
        assert await store.secret_key("marks") == secret


async def test_secret_key_is_made_once_despite_concurrent_requests(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        keys = await asyncio.gather(*((store, second)[n % 2].secret_key("marks") for n in range(20)))
        other = await second.secret_key("links")
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    assert other != keys[0]


@pytest.mark.usefixtures("threads_end")
async def test_closed_store_is_unavailable(store_url: str) -> None:
    store = await Store.open(store_url)
    await store.check()
    await store.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.claim(KEY, **WHO)


async def test_cancelled_claim_leaves_the_store_usable(store: Store) -> None:
    for number in range(1, 8):
        task = asyncio.create_task(store.claim(ticket_key(KEY, number), **WHO))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await store.claim(ticket_key(KEY, 99), **WHO)).kind == "fresh"


async def test_concurrent_opening_creates_the_tables_once(store_url: str) -> None:
    stores = await asyncio.gather(*(Store.open(store_url) for _ in range(12)))
    # One store creates the ticket, and all others find it.
    kinds = [(await store.claim(KEY, **WHO)).kind for store in stores]
    assert (kinds[0], set(kinds[1:]), len(kinds)) == ("fresh", {"open"}, 12)
    for store in stores:
        await store.check()
        await store.close()


async def test_rows_are_read_outside_the_event_loop(store: Store) -> None:
    assert await store.run_in_thread(threading.get_ident) != threading.get_ident()
