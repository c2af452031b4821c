"""What comes of an answer: who gave it, which request it is about, what it says, and what they are told.

Answers are heard from the store, where the way in has kept them: whatever is down meanwhile, each is heard at last,
and decides once.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from pydantic import ValidationError

from signoff.approvals.entries import act, fingerprint
from signoff.channels.base import Channel, NotDelivered
from signoff.channels.endings import not_understood, receipt_words, which_one
from signoff.channels.intake import Record
from signoff.channels.pointing import Asked, Codes, Pointed, note_of, pointed, read_note
from signoff.channels.shapes import Heard, Reply, Status
from signoff.channels.texts import ENGLISH, text
from signoff.channels.voice import Voice, voice_of
from signoff.channels.wording import How
from signoff.channels.words import Said, read
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Assurance, Verdict
from signoff.contracts.errors import Unavailable
from signoff.contracts.ids import show_code
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.registry.people import Directory
from signoff.store.arrivals import ArrivalRow, Arrivals
from signoff.store.deliveries import Deliveries
from signoff.store.leases import LEASE_SECONDS
from signoff.store.store import Store

TICK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""Answers of so many people are heard at the same time; those of one person one after the other, as they came."""
CLAIMED: Final = 4 * AT_ONCE
"""So much is claimed at once at most."""
REPLY_SECONDS: Final = 20.0
LONGEST_WAIT: Final = 300.0
CHOICES: Final = 10
"""Requests that are listed when it is asked which one was meant."""
KEPT: Final = timedelta(days=400)
"""For how long it is known what came in: longer than any request is open, and than any vendor repeats itself."""
MISREADINGS: Final = 10
"""How often something is tried that fails for no reason of the world's, before it is left."""
_SWEEP_EVERY: Final = timedelta(hours=1)
_UNKNOWN_CARD_TRIES: Final = 5
_REPLY_PAUSES: Final = (0.5, 2.0)
"""Between the three times that it is tried to answer somebody; what they decided stands anyway."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answered:
    """What a person answered on a channel. `channel` is its kind, `delivery` is the answer's own name, `received_at`
    when it came in. `again`: it may have been sent before, so that only who can tell what became of it is asked."""

    person: Person
    verdict: Verdict
    reason: str
    channel: str
    assurance: Assurance
    delivery: str
    received_at: datetime
    again: bool = False


class Desk(Codes, Protocol):
    """Where requests are decided: the gateway's, or a test's."""

    async def decide(self, asked: Asked, answered: Answered) -> Receipt:
        """Decide what somebody was asked, in the revision that they were shown. Raises `Unavailable`.

        `pending` and `unavailable` are asked about again; the same `delivery` counts once.
        """
        ...

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """An address at which this person can read the request, and decide it once they are signed in."""
        ...


class Hearing:
    """Hears what came in by `channels`. Several processes over one store share the work."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        directory: Directory,
        desk: Desk,
        record: Record,
        clock: Callable[[], datetime],
    ) -> None:
        self._arrivals = Arrivals(store)
        self._deliveries = Deliveries(store)
        self._channels = channels
        self._directory = directory
        self._desk = desk
        self._record = record
        self._clock = clock
        self._woken = asyncio.Event()
        self._swept: datetime | None = None
        self._seats = asyncio.Semaphore(AT_ONCE)
        self._queues: dict[str, deque[tuple[ArrivalRow, float]]] = {}
        self._speakers: dict[str, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """There may be something new."""
        self._woken.set()

    async def run(self) -> None:
        """Hear whatever comes in, until cancelled; what is under way then is anybody's again at once."""
        failures = 0
        try:
            while True:
                self._woken.clear()
                try:
                    heard = await self._claim()
                    await self._sweep()
                    failures = 0
                except Unavailable as error:
                    failures += 1
                    _log.warning("what came in by channels cannot be looked at now: %s", error.message)
                    await asyncio.sleep(backoff(failures))
                    continue
                if not heard:
                    await self._rest()
        finally:
            await self._leave()

    async def step(self) -> int:
        """Hear what is due now; how much that was. Raises `StoreUnavailable`."""
        heard = await self._claim()
        while self._speakers:
            await asyncio.wait(self._speakers.values())
        return heard

    async def _claim(self) -> int:
        """Begin to hear what is due, as much as there is room for; how much that was."""
        room = CLAIMED - sum(len(queue) for queue in self._queues.values())
        rows = await self._arrivals.claim(room) if room > 0 else []
        late = asyncio.get_running_loop().time() + LEASE_SECONDS / 2
        for row in rows:
            speaker = _speaker(row)
            self._queues.setdefault(speaker, deque()).append((row, late))
            if speaker not in self._speakers:
                self._speakers[speaker] = asyncio.create_task(self._hear_all(speaker))
        return len(rows)

    async def _hear_all(self, speaker: str) -> None:
        """Hear what one person says, in their order; nobody waits for anybody else."""
        queue = self._queues[speaker]
        try:
            async with self._seats:
                while queue:
                    row, late = queue[0]
                    if asyncio.get_running_loop().time() < late:
                        await self._hear(row)
                    else:
                        # Before somebody else may take it: heard twice at once, it would be answered twice.
                        await self._given_back(row)
                    queue.popleft()
            del self._queues[speaker]
        finally:
            del self._speakers[speaker]

    async def _leave(self) -> None:
        speaking = list(self._speakers.values())
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
        left = [row for queue in self._queues.values() for row, _ in queue]
        self._queues, self._speakers = {}, {}
        for row in left:
            await self._given_back(row)

    async def _given_back(self, row: ArrivalRow) -> None:
        """Let a claimed arrival be anybody's, now."""
        with contextlib.suppress(Unavailable):
            await self._arrivals.later(row.key, 0)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _sweep(self) -> None:
        now = self._clock()
        if self._swept is None or now - self._swept >= _SWEEP_EVERY:
            self._swept = now
            await self._arrivals.sweep(KEPT)

    async def _hear(self, row: ArrivalRow) -> None:
        """Hear one arrival, and write down what came of it or when it is heard again. Never raises but to be ended."""
        try:
            result = await self._made_of(row)
            if result is None and self._clock() - row.received_at < KEPT:
                await self._arrivals.later(row.key, backoff(row.attempts))
            elif result is None:
                await self._arrivals.done(row.key, {"what": "given up"}, state="dropped")
            else:
                await self._arrivals.done(row.key, result)
        except Unavailable as error:
            _log.info("`%s` is heard later: %s", row.key, error.message)
            await self._again(row)
        except Exception as error:
            _log.exception("`%s` could not be heard", row.key)
            await self._again(row, type(error).__name__ if row.attempts >= MISREADINGS else "")

    async def _again(self, row: ArrivalRow, failure: str = "") -> None:
        try:
            if failure:
                await self._arrivals.done(row.key, {"what": "failed", "why": failure}, state="dropped")
            else:
                await self._arrivals.later(row.key, backoff(row.attempts))
        except Unavailable:
            # It is claimed for a minute, and then anybody's again.
            _log.warning("the store does not take what is to become of `%s`", row.key)

    async def _made_of(self, row: ArrivalRow) -> dict[str, Any] | None:
        """What came of an arrival; None where that is to be seen later."""
        channel = self._channels.get(row.channel)
        if channel is None:
            return None
        try:
            if row.kind == "status":
                return await self._reported(channel, Status.model_validate_json(row.body), row.attempts)
            heard = Heard.model_validate_json(row.body)
        except ValidationError:
            return {"what": "unreadable"}
        return await self._said(channel, heard, row)

    async def _reported(self, channel: Channel, status: Status, attempts: int) -> dict[str, Any] | None:
        card = await self._deliveries.state(channel.name, status.vendor_id, status.state, status.code, status.told)
        if card is not None:
            return {"what": status.state, "token": card.token, "state": card.state}
        return None if attempts < _UNKNOWN_CARD_TRIES else {"what": status.state, "token": ""}

    async def _said(self, channel: Channel, heard: Heard, row: ArrivalRow) -> dict[str, Any] | None:
        person = await self._who(channel, heard)
        if person is None:
            return await self._stranger(channel, heard)
        said = _read(heard, person)
        voice = voice_of(person, self._clock())
        if row.about is not None and said.verdict is not None:
            # It may be decided already, and what is open now is not what was open then.
            return await self._decided(channel, heard, person, said, read_note(row.about), row)
        about = await pointed(self._deliveries, self._desk, channel, person, heard, said.code, row.received_at)
        if said.verdict is None or not about.certain:
            reply = await self._question(channel, heard, person, said, about, voice)
            return await self._told(channel, heard, reply, what="asked", person=person.id, why=said.why)
        asked = about.asked[0]
        request = asked.request
        if request.state == "pending" and (request.confirm == "type" or request.kind == "in_doubt"):
            link = await self._desk.link(request, person, channel.kind)
            told = f"{text('reply.link_only', voice.language)} {text('reply.see', voice.language, link=link)}"
            return await self._told(channel, heard, Reply(text=told), what="link", person=person.id)
        asked = read_note(await self._arrivals.note(row.key, note_of(asked)))
        return await self._decided(channel, heard, person, said, asked, row)

    async def _decided(
        self, channel: Channel, heard: Heard, person: Person, said: Said, asked: Asked, row: ArrivalRow
    ) -> dict[str, Any] | None:
        """What came of an answer that names one request."""
        assert said.verdict is not None
        voice = voice_of(person, self._clock())
        link = await self._desk.link(asked.request, person, channel.kind)
        receipt = await self._desk.decide(asked, _answered(channel, person, said.verdict, said.comment, row))
        reply = Reply(text=receipt_words(receipt, voice, link), receipt=receipt)
        if receipt.status == "pending" or receipt.code == "unavailable":
            if receipt.status == "pending" and row.attempts == 1:
                await self._reply(channel, heard, reply)
            return None
        facts = {"approval": receipt.approval_id, "status": receipt.status, "code": receipt.code}
        return await self._told(channel, heard, reply, what="decided", person=person.id, **facts)

    async def _who(self, channel: Channel, heard: Heard) -> Person | None:
        """The one active person who is that identity: in the tenant of the card, else in whichever tenant it is."""
        card = await self._deliveries.by_token(heard.token) if heard.token else None
        everywhere = dict.fromkeys(person.tenant for person in self._directory.all())
        tenants = everywhere if card is None else (card.tenant,)
        found = [self._directory.by_identity(channel.identity, heard.identity, tenant) for tenant in tenants]
        people = [person for person in found if person is not None and person.active]
        return people[0] if len(people) == 1 else None

    async def _stranger(self, channel: Channel, heard: Heard) -> dict[str, Any]:
        """Nobody we know: told so once a day, and nothing of what there is."""
        now = self._clock()
        who = fingerprint(heard.identity)[:16]
        seen = act(
            DEFAULT_TENANT,
            "stranger",
            "",
            now,
            kind="attempt",
            key=f"stranger/{channel.name}/{who}/{now.astimezone(UTC):%Y-%m-%d}",
            channel=channel.name,
            identity=heard.identity[:200],
        )
        if not await self._record([seen]):
            return {"what": "stranger"}
        return await self._told(channel, heard, Reply(text=text("reply.stranger", ENGLISH)), what="stranger")

    async def _question(
        self, channel: Channel, heard: Heard, person: Person, said: Said, about: Pointed, voice: Voice
    ) -> Reply:
        """What somebody is asked whose answer decides nothing."""
        requests = list({asked.request.id: asked.request for asked in about.asked}.values())[:CHOICES]
        if not requests:
            return Reply(text=text("receipt.unknown" if said.code or heard.token else "reply.none", voice.language))
        if about.certain or (said.verdict is None and len(requests) == 1):
            link = await self._desk.link(requests[0], person, channel.kind)
            how: How = "reply" if heard.token or heard.vendor_ids else "text"
            return Reply(text=not_understood(requests[0], voice, link, how=how))
        return Reply(text=which_one(requests, voice), choices=tuple(show_code(each.code) for each in requests))

    async def _told(self, channel: Channel, heard: Heard, reply: Reply, **result: Any) -> dict[str, Any]:
        """`result`, once whoever said something is answered, or cannot be."""
        facts = {name: value for name, value in result.items() if value}
        return {**facts, "answered": await self._reply(channel, heard, reply)}

    async def _reply(self, channel: Channel, heard: Heard, reply: Reply) -> bool:
        for pause in (*_REPLY_PAUSES, None):
            try:
                async with asyncio.timeout(REPLY_SECONDS):
                    await channel.answer(heard.where, reply)
            except NotDelivered as error:
                _log.warning("an answer on `%s` did not get out: %s", channel.name, error.message)
                if not error.again or pause is None:
                    return False
                await asyncio.sleep(min(max(pause, error.after), REPLY_SECONDS))
            except Exception as error:
                # Adapters are anybody's code, and what was decided stands.
                _log.warning("an answer on `%s` did not get out: %s", channel.name, type(error).__name__)
                return False
            else:
                return True
        return False


def backoff(attempts: int) -> float:
    """Seconds until the next try: 1, 2, 4, ... up to 5 minutes."""
    return float(min(LONGEST_WAIT, 2 ** min(max(attempts, 1) - 1, 20)))


def _speaker(row: ArrivalRow) -> str:
    """Whose answers, or what cards' states, are to be heard in their order."""
    if row.kind == "status":
        return f"{row.channel}/status"
    try:
        return f"{row.channel}:{Heard.model_validate_json(row.body).identity}"
    except ValidationError:
        return row.key


def _read(heard: Heard, person: Person) -> Said:
    """What was said: by a button, else in words."""
    if heard.verdict is None:
        return read(heard.text, person.locale)
    return Said(heard.verdict, "", heard.reason or heard.text.strip())


def _answered(channel: Channel, person: Person, verdict: Verdict, reason: str, row: ArrivalRow) -> Answered:
    return Answered(
        person=person,
        verdict=verdict,
        reason=reason if len(reason) <= REASON_CHARS else reason[: REASON_CHARS - 1] + "…",
        channel=channel.kind,
        assurance=channel.assurance,
        delivery=hashlib.sha256(row.key.encode()).hexdigest()[:32],
        received_at=row.received_at,
        again=row.attempts > 1,
    )
