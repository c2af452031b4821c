"""Starts programs of Signoff's as forks of a process that has imported Signoff once: a start costs a tenth of its time.

Importing is most of what a start costs, 1.5 s of processor time, and the tests start hundreds of processes. A fork of
one that has imported and done nothing else is such a process in all but its start: it has a pid of its own, is a child
of the tests' process, has the folder, the environment, the arguments and the files that it was given, is killed and
waited for like any other, and runs the same module as `__main__`. What is started by its name from a shell, in another
environment, or with `-c` starts as ever; so does what a program itself starts.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

from signoff.policy.second_engine import second_program

HERE: Final = Path(__file__).resolve().parent
SIGNOFF: Final = Path(sys.executable).with_name("signoff")
PROGRAM: Final = "signoff.cli.main"
"""The module of the program `signoff`; what else is started by `-m` stays outside."""
_WORKERS: Final = ("held_worker.py", "killable_stack.py", "killable_worker.py", "subscriber_worker.py")
FORKED_FILES: Final = frozenset(str(HERE / name) for name in _WORKERS)
"""Programs of the tests' own that are not about what a start imports."""
IMPORTED: Final = ("signoff.cli.local.gateway", "signoff.cli.local.worker", "signoff.cli.local.codec")
_SET_SUBREAPER: Final = 36
_MESSAGE_BYTES: Final = 1 << 20
_OUTPUT_OPTIONS: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""What a process can be told after its start as well."""
_PLAIN: Final[dict[str, Any]] = {
    "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False, "restore_signals": True,
    "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""Options of a start that leave nothing to be done but what a fork does."""


class ForkRequest(TypedDict):
    """What is to be started."""

    words: list[str]
    cwd: str
    env: dict[str, str]
    session: bool


def forkable_words(args: Any, env: Mapping[str, str]) -> list[str] | None:
    """The command line from its module or file on, where a fork can run it; None for any other program."""
    words = [os.fsdecode(each) for each in args] if isinstance(args, list | tuple) else []
    if not words or _interpreter_options(env) != _OURS:
        return None
    if words[0] == sys.executable:
        if words[1:3] == ["-m", PROGRAM]:
            return words[1:]
        return words[1:] if len(words) > 1 and words[1] in FORKED_FILES else None
    found = next((each for each in os.get_exec_path(dict(env)) if (Path(each) / "signoff").exists()), "")
    if words[0] == str(SIGNOFF) or (words[0] == "signoff" and Path(found) == SIGNOFF.parent):
        return ["-m", PROGRAM, *words[1:]]
    return None


def _interpreter_options(env: Mapping[str, str]) -> dict[str, str]:
    """What the interpreter, and the C library at its start, read of an environment."""
    names = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
    told = {name: value for name, value in env.items() if value and name.startswith(names)}
    # What Python makes of no language at all.
    told = {"LANG": "C.UTF-8", **told}
    return {name: value for name, value in told.items() if name not in _OUTPUT_OPTIONS}


_OURS: Final = _interpreter_options(os.environ)


class ForkServer:
    """A process that forks one of the tests' for each request; started with the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None

    def start(self) -> None:
        """Starts the server, which imports by itself: nobody waits for that who asks it for a fork later."""
        with self._lock:
            self._peer = self._peer or self._start()

    def fork(self, request: ForkRequest, files: Sequence[int]) -> int:
        """Returns the pid of a new child of this process. Raises `OSError` where the server has ended."""
        with self._lock:
            self._peer = peer = self._peer or self._start()
            # Only for this moment: who is orphaned at any other time goes to the system, as ever.
            _adopt_orphans(True)
            try:
                socket.send_fds(peer, [json.dumps(request).encode()], files)
                reply = peer.recv(_MESSAGE_BYTES)
            finally:
                _adopt_orphans(False)
        if not reply:
            raise OSError("the fork server has ended")
        return int(reply)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        with theirs:
            # The tests' own end is closed in it, so that it ends with them.
            child = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=(theirs.fileno(),))
        atexit.register(self._end, child)
        return ours

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if self._peer is not None:
            self._peer.close()
        child.wait()


SERVER: Final = ForkServer()


class ForkingPopen(subprocess.Popen[Any]):
    """Forks what `forkable_words` names, and starts everything else as `Popen` does."""

    def _execute_child(self, *given: Any) -> None:
        start: Any = super()._execute_child  # type: ignore[misc]
        option = inspect.signature(start).bind(*given).arguments
        env = os.environ if option["env"] is None else option["env"]
        words = forkable_words(option["args"], env)
        if words is None or any(option[name] != plain for name, plain in _PLAIN.items()):
            start(*given)
            return
        request = ForkRequest(
            words=words,
            cwd=os.fsdecode(option["cwd"] or os.getcwd()),
            env=dict(env),
            session=bool(option["start_new_session"]),
        )
        ends = [option[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        theirs = (ends[0], ends[3], ends[5])
        try:
            self.pid = SERVER.fork(request, [own if end == -1 else end for own, end in enumerate(theirs)])
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]
        self._child_created = True


def _adopt_orphans(wanted: bool) -> None:
    """Has orphans among this process' descendants become its children, or no more."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def serve(peer: socket.socket) -> None:
    """Forks for each request until the tests have ended."""
    sys.path.insert(0, str(HERE))
    for name in IMPORTED:
        importlib.import_module(name)
    # Reads CEL's grammar, which takes a tenth of a second, into a cache; nothing more of it stays.
    second_program("true")
    # What is here stays, in each fork as well.
    gc.freeze()
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a fork has but one thread: what the others held would be held for ever"
    while True:
        message, files, _, _ = socket.recv_fds(peer, _MESSAGE_BYTES, 3)
        if not message:
            return
        _answer(peer, json.loads(message), files)


def _answer(peer: socket.socket, request: ForkRequest, files: Sequence[int]) -> None:
    told, tell = os.pipe()
    may_begin, begun = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child == 0:
            for each in (told, tell, begun):
                os.close(each)
            peer.close()
            # Until its parent is the tests' process.
            os.read(may_begin, 1)
            os.close(may_begin)
            _run(request, files)
        os.write(tell, str(child).encode())
        os._exit(0)
    os.close(tell)
    os.close(may_begin)
    pid = os.read(told, 32)
    os.waitpid(between, 0)
    peer.send(pid)
    for each in (told, begun, *files):
        os.close(each)


def _run(request: ForkRequest, files: Sequence[int]) -> NoReturn:
    """Becomes what was asked for, and ends as it does."""
    code = 1
    try:
        _become(request, files)
        words = request["words"]
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path[0] = str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _become(request: ForkRequest, files: Sequence[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # What was read of the environment at the start.
    time.tzset()
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(write_through=at_once)  # type: ignore[union-attr]


if __name__ == "__main__":
    # Whoever interrupts the tests ends them, and they this.
    serve(socket.socket(fileno=int(sys.argv[1])))
