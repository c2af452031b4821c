"""Answers that lie in a mailbox: what is unread is taken, and then marked as read; IDLE says at once what is new.

The mailbox is for answers alone: what somebody reads in it before us is not taken.
"""

import asyncio
import contextlib
import imaplib
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from imap_tools import BaseMailBox, MailBox, MailBoxStartTls, MailBoxUnencrypted, MailMessageFlags
from imap_tools.errors import ImapToolsError

from signoff.channels.base import Forged, Malformed
from signoff.channels.mail_options import ImapOptions
from signoff.contracts.errors import Unavailable

LOOK_SECONDS: Final = 60
"""After so long the mailbox is looked into though nothing was said to be new."""
DEAF_SECONDS: Final = 10
"""And so often where the server never says so."""
_POLL_SECONDS: Final = 1
_END_SECONDS: Final = 5.0
_HAND_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)

Take = Callable[[bytes], Awaitable[object]]


async def fetch(options: ImapOptions, room: int, take: Take) -> None:
    """Take mail of at most `room` bytes until cancelled. What is refused is not offered again; what cannot be kept is.

    Raises `Unavailable` when the mailbox cannot be reached.
    """
    loop = asyncio.get_running_loop()
    over = threading.Event()

    def hand(raw: bytes) -> None:
        taken = asyncio.run_coroutine_threadsafe(_taken(take, raw), loop)
        try:
            taken.result(_HAND_SECONDS)
        except TimeoutError:
            taken.cancel()
            raise

    # A thread of its own: it waits for the mailbox as long as the process runs.
    thread = ThreadPoolExecutor(1, "signoff-imap")
    working = loop.run_in_executor(thread, _work, options, room, hand, over)
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
    """Sign in and open the folder; nothing where that works, else why not. Blocks."""
    try:
        with _opened(options):
            return ""
    except Unavailable as error:
        return error.message


async def _taken(take: Take, raw: bytes) -> None:
    with contextlib.suppress(Forged, Malformed):
        await take(raw)


def _work(options: ImapOptions, room: int, hand: Callable[[bytes], None], over: threading.Event) -> None:
    late: set[str] = set()
    try:
        with _opened(options) as box:
            while not over.is_set():
                # By UID: the numbers that IMAP gives by position shift when somebody takes a mail away.
                for uid in box.uids("UNSEEN"):
                    if over.is_set():
                        return
                    _one(box, uid, room, hand, late)
                _wait(box, over)
    except (ImapToolsError, imaplib.IMAP4.error, OSError) as error:
        raise Unavailable(f"the mailbox cannot be read: {type(error).__name__}") from error


def _one(box: BaseMailBox, uid: str, room: int, hand: Callable[[bytes], None], late: set[str]) -> None:
    """Take one mail. One that takes too long holds up no other: it is tried once more at the next look."""
    # The size is asked for first, so that a mail without bounds is never loaded.
    size = _size(box, uid)
    raw = _mail(box, uid) if size is not None and size <= room else None
    if size is None or (raw is None and size <= room):
        return  # Somebody has taken it away meanwhile.
    marks = [MailMessageFlags.SEEN]
    if raw is None:
        _log.warning("a mail of more than %d bytes is left in the mailbox", room)
    else:
        try:
            hand(raw)
        except TimeoutError:
            if uid not in late:
                late.add(uid)
                return
            marks.append(MailMessageFlags.FLAGGED)
            _log.error("a mail that twice took more than %g s is left in the mailbox, flagged", _HAND_SECONDS)
    # Marked only now: after a crash before this line the mail comes again, and by its key counts once.
    late.discard(uid)
    box.flag(uid, marks, True)


def _size(box: BaseMailBox, uid: str) -> int | None:
    """Bytes of a mail; None if it is gone."""
    _, sized = box.client.uid("FETCH", uid, "(RFC822.SIZE)")
    told = next((line for line in sized if isinstance(line, bytes)), b"").partition(b"RFC822.SIZE ")[2]
    return int(told.split(b")")[0].split()[0]) if told else None


def _mail(box: BaseMailBox, uid: str) -> bytes | None:
    """The mail as it lies there; None if it is gone. The package's own reader takes minutes for what one can send.

    Nothing is marked by that.
    """
    _, found = box.client.uid("FETCH", uid, "(BODY.PEEK[])")
    return next((bytes(part[1]) for part in found if isinstance(part, tuple)), None)


def _wait(box: BaseMailBox, over: threading.Event) -> None:
    """Until something is new, it is time to look anyway, or all is over."""
    # Asked for after signing in: what was told before may differ (RFC 3501).
    _, told = box.client.capability()
    if b"IDLE" not in told[-1].upper().split():
        over.wait(DEAF_SECONDS)
        # NOOP is how a server that pushes nothing is asked for new mail (RFC 3501).
        box.client.noop()
        return
    with box.idle as idle:
        # By the second, since only between two polls is it seen that all is over. Servers may end an IDLE of 30 minutes
        # (RFC 2177): a minute stays well below.
        for _ in range(LOOK_SECONDS // _POLL_SECONDS):
            if over.is_set() or any(b"EXISTS" in line for line in idle.poll(timeout=_POLL_SECONDS)):
                return


@contextlib.contextmanager
def _opened(options: ImapOptions) -> Iterator[BaseMailBox]:
    """The folder, signed in to. Raises `Unavailable`."""
    box: BaseMailBox | None = None
    try:
        try:
            box = _connected(options)
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


def _connected(options: ImapOptions) -> BaseMailBox:
    host, port, seconds = options.host, options.port, options.timeout_seconds
    if options.tls == "none":
        return MailBoxUnencrypted(host, port, timeout=seconds)
    context = ssl.create_default_context()
    if options.tls == "starttls":
        return MailBoxStartTls(host, port, timeout=seconds, ssl_context=context)
    return MailBox(host, port, timeout=seconds, ssl_context=context)
