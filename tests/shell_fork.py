"""The placeholder of a program that a shell starts, which is a fork of the fork server: see `fork_server`.

It is copied into an executable file. It uses little of the standard library, because it starts each time."""

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def stand_for_fork(address: str, program: str) -> NoReturn:
    """Forward signals to the fork and end as it does. Becomes the program itself if a fork would differ from it."""
    # Until their receiver is known.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    peer.connect(f"\0{address}")
    words = ["-m", "signoff.cli.main", *sys.argv[1:]]
    request = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ), "session": False}
    socket.send_fds(peer, [json.dumps(request).encode()], (0, 1, 2))
    pid = peer.recv(32)
    if not pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
        os.execv(program, [program, *sys.argv[1:]])

    def hand_on(number: int, _: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), number)

    for each in HANDED_ON:
        # A program that a shell starts in the background ignores an interrupt.
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    # An ended keeper sends nothing more, and the program has ended with it.
    code = int(peer.recv(32) or -signal.SIGKILL)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
