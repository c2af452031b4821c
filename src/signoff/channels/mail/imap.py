"""Takes unread email from a mailbox, then marks it as read.

IDLE reports new email at once. Use the mailbox only for answers: email that a person reads in it first is not taken.
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
"""Seconds between two looks if the server reports nothing new."""
DEAF_SECONDS: Final = 10
"""Seconds between two looks at a server without IDLE."""
_POLL_SECONDS: Final = 1
_END_SECONDS: Final = 5.0
_HAND_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)

TakeMail = Callable[[bytes], Awaitable[object]]
_Hand = Callable[[bytes], "Future[None]"]
_UID: Final = re.compile(rb"\bUID (\d+)")
_CHANGE: Final = re.compile(rb"\* (\d+) (EXISTS|EXPUNGE)\b")


async def fetch(options: ImapOptions, max_bytes: int, take: TakeMail, first: Callable[[str], bool]) -> None:
    """Take email of at most `max_bytes` until cancelled.

    Refused email is not offered again; unstored email is. Emails of several senders' domains are taken in parallel,
    emails of one domain in order, and `first` domains before others. Raises `Unavailable` if the mailbox cannot be
    reached.
    """
    loop = asyncio.get_running_loop()
    over = threading.Event()

    def hand(raw: bytes) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(_take(take, raw), loop)

    # Use a separate thread: it waits for the mailbox as long as the process runs.
    thread = ThreadPoolExecutor(1, "signoff-imap")
    working = loop.run_in_executor(thread, _work, options, max_bytes, hand, first, over)
    try:
        # A thread continues when its future is cancelled: set `over` to stop it, and wait for it.
        await asyncio.shield(working)
    finally:
        over.set()
        await asyncio.wait([working], timeout=_END_SECONDS)
        if working.done():
            # Read the exception: otherwise asyncio later reports that it was never retrieved.
            working.exception()
        thread.shutdown(wait=False)


def try_mailbox(options: ImapOptions) -> str:
    """Sign in and open the folder. Returns the problem, or "". Blocks."""
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
                # The search finds all email that the server reported before it.
                _grew(box, count)
                # Look again after `MAIL_SORTED` emails: new email of `first` domains must not wait for a flood.
                if not look.take(_read_domains(box, box.uids("UNSEEN")[:MAIL_SORTED], first)):
                    _wait(box, over, count)
    except (ImapToolsError, imaplib.IMAP4.error, OSError) as error:
        raise Unavailable(f"the mailbox cannot be read: {type(error).__name__}") from error


def _read_domains(box: BaseMailBox, uids: list[str], first: Callable[[str], bool]) -> list[tuple[str, str]]:
    if not uids:
        return []
    # Use UIDs: IMAP's numbers by position shift when another client removes an email.
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
    """Follows the server's counts of emails."""

    number: int | None = None
    """None if unknown."""

    def grew(self, exists: Sequence[bytes], expunged: int) -> bool:
        """Note the reported counts and the number of removed emails. Returns whether there may be new ones."""
        if not exists:
            self.number = None if self.number is None else self.number - expunged
            return False
        last = int(exists[-1])
        # Ignore repeated counts: some servers report one with each response, and the looks would never end.
        new = expunged > 0 or last != self.number
        # It is unknown which removals a count already includes.
        self.number = None if expunged else last
        return new


@dataclass
class _Look:
    """One look into the mailbox. Takes emails in parallel, one per sender's domain."""

    box: BaseMailBox
    max_bytes: int
    hand: _Hand
    over: threading.Event
    late: set[str]
    busy: dict["Future[None]", tuple[str, str, float]] = field(default_factory=dict)
    """Maps running work to the UID, the sender's domain, and the time limit."""

    def take(self, mails: list[tuple[str, str]]) -> bool:
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
        # Check the size first, so that an oversized email is never loaded.
        size = _size(self.box, uid)
        raw = _mail(self.box, uid) if size is not None and size <= self.max_bytes else None
        if size is None or (raw is None and size <= self.max_bytes):
            return  # Another client removed it.
        if raw is None:
            _log.warning("an email of more than %d bytes is left in the mailbox", self.max_bytes)
            self.box.flag(uid, [MailMessageFlags.SEEN], True)
        else:
            self.busy[self.hand(raw)] = (uid, domain, time.monotonic() + _HAND_SECONDS)

    def _settle(self) -> None:
        """Wait until one email is taken or reaches its time limit. Raises if an email cannot be stored."""
        until = min(until for _, _, until in self.busy.values())
        seconds = min(_POLL_SECONDS, max(0.0, until - time.monotonic()))
        done, _ = wait(self.busy, timeout=seconds, return_when=FIRST_COMPLETED)
        for taken in done:
            uid, _, _ = self.busy.pop(taken)
            taken.result()
            # Mark it only now: after a crash before this line the email is taken again, but its key counts once.
            self.late.discard(uid)
            self.box.flag(uid, [MailMessageFlags.SEEN], True)
        for taken, (uid, _, until) in list(self.busy.items()):
            if time.monotonic() >= until:
                del self.busy[taken]
                taken.cancel()
                self._give_up(uid)

    def _give_up(self, uid: str) -> None:
        """Skip an email that takes too long, so that it delays no other. The next look tries it a last time."""
        if uid not in self.late:
            self.late.add(uid)
            return
        self.late.discard(uid)
        _log.error("an email that twice took more than %g s is left in the mailbox, flagged", _HAND_SECONDS)
        self.box.flag(uid, [MailMessageFlags.SEEN, MailMessageFlags.FLAGGED], True)


def _size(box: BaseMailBox, uid: str) -> int | None:
    """In bytes. None if the email was removed."""
    _, sized = box.client.uid("FETCH", uid, "(RFC822.SIZE)")
    size = next((line for line in sized if isinstance(line, bytes)), b"").partition(b"RFC822.SIZE ")[2]
    return int(size.split(b")")[0].split()[0]) if size else None


def _mail(box: BaseMailBox, uid: str) -> bytes | None:
    """Return the unchanged email without marking it as read, None if it was removed.

    The package's own parser takes minutes for an attacker's email.
    """
    _, found = box.client.uid("FETCH", uid, "(BODY.PEEK[])")
    return next((bytes(part[1]) for part in found if isinstance(part, tuple)), None)


def _grew(box: BaseMailBox, count: _Count) -> bool:
    exists, expunged = (box.client.response(name)[1] for name in ("EXISTS", "EXPUNGE"))
    return count.grew([each for each in exists if each is not None], sum(each is not None for each in expunged))


def _has_changes(lines: Sequence[bytes], count: _Count) -> bool:
    changes = [found for each in lines if (found := _CHANGE.match(each)) is not None]
    return count.grew(
        [each[1] for each in changes if each[2] == b"EXISTS"], sum(each[2] == b"EXPUNGE" for each in changes)
    )


def _wait(box: BaseMailBox, over: threading.Event, count: _Count) -> None:
    # Ask after signing in: earlier capabilities may differ (RFC 3501).
    _, capabilities = box.client.capability()
    if b"IDLE" not in capabilities[-1].upper().split():
        over.wait(DEAF_SECONDS)
        # NOOP asks a server without IDLE for new email (RFC 3501).
        box.client.noop()
        return
    # The server reported email since the search with its later responses. IDLE does not repeat that (RFC 2177).
    if _grew(box, count):
        return
    with box.idle as idle:
        new = _has_changes(_read_already(box), count)
        # Poll each second, since `over` is only checked between two polls. Servers may end an IDLE of 30 minutes
        # (RFC 2177): a minute stays well below.
        for _ in range(LOOK_SECONDS // _POLL_SECONDS):
            if new or over.is_set():
                return
            new = _has_changes(idle.poll(timeout=_POLL_SECONDS), count)


def _read_already(box: BaseMailBox) -> list[bytes]:
    """Return the lines that are already in the buffer: polling the socket does not show them."""
    client, lines = box.client, list[bytes]()
    before = client.sock.gettimeout()
    client.sock.settimeout(0)
    try:
        # Without data, a TLS connection raises and a plain one returns an empty line.
        with contextlib.suppress(OSError):
            while line := client.readline():
                lines.append(line)
    finally:
        client.sock.settimeout(before)
    return lines


@contextlib.contextmanager
def _open(options: ImapOptions) -> Iterator[BaseMailBox]:
    """Sign in and open the folder. Raises `Unavailable`."""
    box: BaseMailBox | None = None
    try:
        try:
            box = _connect(options)
            box.login(options.user, options.password, options.folder)
        except (ImapToolsError, imaplib.IMAP4.error, OSError) as error:
            # Leave out the server's message: it may repeat the password.
            raise Unavailable(f"the mailbox cannot be opened: {type(error).__name__}") from None
        yield box
    finally:
        if box is not None:
            _leave(box)


def _leave(box: BaseMailBox) -> None:
    with contextlib.suppress(ImapToolsError, imaplib.IMAP4.error, OSError):
        box.logout()
    # If the server has disconnected, nothing else closes the socket.
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
