"""Stands for a program that a shell starts, which is a fork of the fork server's: see `fork_server`.

It is copied into an executable file. Of the standard library alone, and little of it: it begins for each start.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def stand_for_fork(address: str, program: str) -> NoReturn:
    """Has the program forked with what this process was given, hands signals on to it and ends as it does.

    Becomes the program itself where a fork would not be it.
    """
    # Until it is known to whom they go.
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
        # What a shell starts in the background does not hear an interrupt.
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    # A keeper that has ended says nothing more, and the program has ended with it.
    code = int(peer.recv(32) or -signal.SIGKILL)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
