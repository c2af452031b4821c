"""Fetches answers from a mailbox: unread mail is taken, and then marked as read; IDLE reports at once what is new.

The mailbox is for answers alone: what somebody reads in it before us is not taken.
"""

import asyncio
import contextlib
import imaplib
import logging
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from imap_tools import BaseMailBox, MailBox, MailBoxStartTls, MailBoxUnencrypted, MailMessageFlags
from imap_tools.errors import ImapToolsError

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.mail.header import only_sender, part_header
from signoff.channels.mail.options import ImapOptions
from signoff.contracts.errors import Unavailable
from signoff.contracts.limits import MAIL_FETCHED_AT_ONCE, MAIL_SORTED

LOOK_SECONDS: Final = 60
"""After so long the mailbox is looked into though nothing was said to be new."""
DEAF_SECONDS: Final = 10
"""And so often where the server never says so."""
_POLL_SECONDS: Final = 1
_END_SECONDS: Final = 5.0
_HAND_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)

TakeMail = Callable[[bytes], Awaitable[object]]
_Hand = Callable[[bytes], "Future[None]"]
_UID: Final = re.compile(rb"\bUID (\d+)")
_CHANGE: Final = re.compile(rb"\* (\d+) (EXISTS|EXPUNGE)\b")


async def fetch(options: ImapOptions, max_bytes: int, take: TakeMail, first: Callable[[str], bool]) -> None:
    """Takes mail of at most `max_bytes` until cancelled. Refused mail is not offered again; what cannot be kept is.

    Mails of several senders' domains are taken at the same time, those of one in their order, and domains that are
    `first` before others. Raises `Unavailable` when the mailbox cannot be reached.
    """
    loop = asyncio.get_running_loop()
    over = threading.Event()

    def hand(raw: bytes) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(_take(take, raw), loop)

    # A thread of its own: it waits for the mailbox as long as the process runs.
    thread = ThreadPoolExecutor(1, "signoff-imap")
    working = loop.run_in_executor(thread, _work, options, max_bytes, hand, first, over)
    try:
        # A thread goes on when its future is cancelled: it is told by `over`, and then waited for.
        await asyncio.shield(working)
    finally:
        over.set()
        await asyncio.wait([working], timeout=_END_SECONDS)
        if working.done():
            # Looked at, or asyncio complains later of an error that nobody asked for.
            working.exception()
        thread.shutdown(wait=False)


def try_mailbox(options: ImapOptions) -> str:
    """Signs in and opens the folder; returns the problem, or "". Blocks."""
    try:
        with _open(options):
            return ""
    except Unavailable as error:
        return error.message


async def _take(take: TakeMail, raw: bytes) -> None:
    with contextlib.suppress(Forged, Malformed):
        await take(raw)


def _work(
    options: ImapOptions, max_bytes: int, hand: _Hand, first: Callable[[str], bool], over: threading.Event
) -> None:
    late: set[str] = set()
    count = _Count()
    try:
        with _open(options) as box:
            while not over.is_set():
                look = _Look(box, max_bytes, hand, over, late)
                # What was told before the search, the search finds.
                _grew(box, count)
                # Another look after so many: what has come meanwhile of domains that are first waits for no flood.
                if not look.take(_read_domains(box, box.uids("UNSEEN")[:MAIL_SORTED], first)):
                    _wait(box, over, count)
    except (ImapToolsError, imaplib.IMAP4.error, OSError) as error:
        raise Unavailable(f"the mailbox cannot be read: {type(error).__name__}") from error


def _read_domains(box: BaseMailBox, uids: list[str], first: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Returns the mails, by UID, with the domain that each claims to be from; `first` domains before others."""
    if not uids:
        return []
    # By UID: the numbers that IMAP gives by position shift when somebody takes a mail away.
    _, found = box.client.uid("FETCH", ",".join(uids), "(UID BODY.PEEK[HEADER.FIELDS (FROM)])")
    domains: dict[str, str] = {}
    for item in found:
        if isinstance(item, tuple) and (uid := _UID.search(item[0])) is not None:
            header = part_header(bytes(item[1]).replace(b"\r\n", b"\n"))
            domains[uid[1].decode("ascii")] = only_sender(header)[0].partition("@")[2]
    claimed = [(uid, domains.get(uid, "")) for uid in uids]
    return sorted(claimed, key=lambda mail: not first(mail[1]))


@dataclass
class _Count:
    """Follows how many mails the server says there are."""

    number: int | None = None
    """How many it said last; None where that is not known."""

    def grew(self, exists: Sequence[bytes], expunged: int) -> bool:
        """Takes in the counts that were told, and of how many mails that they were removed; returns whether there may
        be new ones.
        """
        if not exists:
            self.number = None if self.number is None else self.number - expunged
            return False
        last = int(exists[-1])
        # Not every count: some servers tell it with each reply, and the mailbox would be looked into without end.
        new = expunged > 0 or last != self.number
        # Of a count among removals it is not known which of them it has.
        self.number = None if expunged else last
        return new


@dataclass
class _Look:
    """Looks into the mailbox once: mails that are taken at the same time, one of a sender's domain."""

    box: BaseMailBox
    max_bytes: int
    hand: _Hand
    over: threading.Event
    late: set[str]
    busy: dict["Future[None]", tuple[str, str, float]] = field(default_factory=dict)
    """What is being taken: its UID, its sender's domain, and until when it is waited for."""

    def take(self, mails: list[tuple[str, str]]) -> bool:
        """Takes the first of them; returns whether there are more than that."""
        now, more = mails[: 4 * MAIL_FETCHED_AT_ONCE], mails[4 * MAIL_FETCHED_AT_ONCE :]
        while (now or self.busy) and not self.over.is_set():
            busy = {domain for _, domain, _ in self.busy.values()}
            ready = next((mail for mail in now if mail[1] not in busy), None)
            if ready is not None and len(self.busy) < MAIL_FETCHED_AT_ONCE:
                now.remove(ready)
                self._begin(*ready)
            else:
                self._settle()
        return bool(more)

    def _begin(self, uid: str, domain: str) -> None:
        # The size is asked for first, so that a mail without bounds is never loaded.
        size = _size(self.box, uid)
        raw = _mail(self.box, uid) if size is not None and size <= self.max_bytes else None
        if size is None or (raw is None and size <= self.max_bytes):
            return  # Somebody has taken it away meanwhile.
        if raw is None:
            _log.warning("a mail of more than %d bytes is left in the mailbox", self.max_bytes)
            self.box.flag(uid, [MailMessageFlags.SEEN], True)
        else:
            self.busy[self.hand(raw)] = (uid, domain, time.monotonic() + _HAND_SECONDS)

    def _settle(self) -> None:
        """Waits for one that is taken, or for the end of the time of one that is not. What cannot be kept raises."""
        until = min(until for _, _, until in self.busy.values())
        seconds = min(_POLL_SECONDS, max(0.0, until - time.monotonic()))
        done, _ = wait(self.busy, timeout=seconds, return_when=FIRST_COMPLETED)
        for taken in done:
            uid, _, _ = self.busy.pop(taken)
            taken.result()
            # Marked only now: after a crash before this line the mail comes again, and by its key counts once.
            self.late.discard(uid)
            self.box.flag(uid, [MailMessageFlags.SEEN], True)
        for taken, (uid, _, until) in list(self.busy.items()):
            if time.monotonic() >= until:
                del self.busy[taken]
                taken.cancel()
                self._give_up(uid)

    def _give_up(self, uid: str) -> None:
        """Leaves one that takes too long: it holds up no other, and is tried once more at the next look."""
        if uid not in self.late:
            self.late.add(uid)
            return
        self.late.discard(uid)
        _log.error("a mail that twice took more than %g s is left in the mailbox, flagged", _HAND_SECONDS)
        self.box.flag(uid, [MailMessageFlags.SEEN, MailMessageFlags.FLAGGED], True)


def _size(box: BaseMailBox, uid: str) -> int | None:
    """Returns the bytes of a mail; None if it is gone."""
    _, sized = box.client.uid("FETCH", uid, "(RFC822.SIZE)")
    size = next((line for line in sized if isinstance(line, bytes)), b"").partition(b"RFC822.SIZE ")[2]
    return int(size.split(b")")[0].split()[0]) if size else None


def _mail(box: BaseMailBox, uid: str) -> bytes | None:
    """Returns the mail as it lies there; None if it is gone.

    The package's own reader takes minutes for what one can send.

    Nothing is marked by that.
    """
    _, found = box.client.uid("FETCH", uid, "(BODY.PEEK[])")
    return next((bytes(part[1]) for part in found if isinstance(part, tuple)), None)


def _grew(box: BaseMailBox, count: _Count) -> bool:
    """Returns whether there may be new mail by what was told beside replies since this was asked last."""
    exists, expunged = (box.client.response(name)[1] for name in ("EXISTS", "EXPUNGE"))
    return count.grew([each for each in exists if each is not None], sum(each is not None for each in expunged))


def _has_changes(lines: Sequence[bytes], count: _Count) -> bool:
    """Returns whether there may be new mail by these lines, which were told while nothing was asked."""
    changes = [found for each in lines if (found := _CHANGE.match(each)) is not None]
    return count.grew(
        [each[1] for each in changes if each[2] == b"EXISTS"], sum(each[2] == b"EXPUNGE" for each in changes)
    )


def _wait(box: BaseMailBox, over: threading.Event, count: _Count) -> None:
    """Waits until something is new, it is time to look anyway, or all is over."""
    # Asked for after signing in: what was told before may differ (RFC 3501).
    _, capabilities = box.client.capability()
    if b"IDLE" not in capabilities[-1].upper().split():
        over.wait(DEAF_SECONDS)
        # NOOP is how a server that pushes nothing is asked for new mail (RFC 3501).
        box.client.noop()
        return
    # What came since the search was told with the replies to what followed it: IDLE does not tell it again (RFC 2177).
    if _grew(box, count):
        return
    with box.idle as idle:
        new = _has_changes(_read_already(box), count)
        # By the second, since only between two polls is it seen that all is over. Servers may end an IDLE of 30 minutes
        # (RFC 2177): a minute stays well below.
        for _ in range(LOOK_SECONDS // _POLL_SECONDS):
            if new or over.is_set():
                return
            new = _has_changes(idle.poll(timeout=_POLL_SECONDS), count)


def _read_already(box: BaseMailBox) -> list[bytes]:
    """Returns the lines that were read together with one before them: no poll of the socket tells of them."""
    client, lines = box.client, list[bytes]()
    before = client.sock.gettimeout()
    client.sock.settimeout(0)
    try:
        # A secured connection raises where nothing is there, any other has an empty line then.
        with contextlib.suppress(OSError):
            while line := client.readline():
                lines.append(line)
    finally:
        client.sock.settimeout(before)
    return lines


@contextlib.contextmanager
def _open(options: ImapOptions) -> Iterator[BaseMailBox]:
    """Opens the folder, signed in. Raises `Unavailable`."""
    box: BaseMailBox | None = None
    try:
        try:
            box = _connect(options)
            box.login(options.user, options.password, options.folder)
        except (ImapToolsError, imaplib.IMAP4.error, OSError) as error:
            # What the server says may repeat what it was sent.
            raise Unavailable(f"the mailbox cannot be opened: {type(error).__name__}") from None
        yield box
    finally:
        if box is not None:
            _leave(box)


def _leave(box: BaseMailBox) -> None:
    with contextlib.suppress(ImapToolsError, imaplib.IMAP4.error, OSError):
        box.logout()
    # Where the server has gone, nothing else closes the socket.
    with contextlib.suppress(OSError):
        box.client.shutdown()


def _connect(options: ImapOptions) -> BaseMailBox:
    host, port, seconds = options.host, options.port, options.timeout_seconds
    if options.tls == "none":
        return MailBoxUnencrypted(host, port, timeout=seconds)
    context = ssl.create_default_context()
    if options.tls == "starttls":
        return MailBoxStartTls(host, port, timeout=seconds, ssl_context=context)
    return MailBox(host, port, timeout=seconds, ssl_context=context)
