"""Starts programs of Signoff as forks of a process that has imported Signoff once, at a tenth of the time.

Programs with another environment or with `-c`
start normally, as do the programs that they start, except for the demo and the benchmarks. In a shell the name
`signoff` starts a fork if `ForkServer.shell_programs` is first in its search path.
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
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

from signoff.policy.second_engine import second_program

HERE: Final = Path(__file__).resolve().parent
SIGNOFF: Final = Path(sys.executable).with_name("signoff")
PROGRAM: Final = "signoff.cli.main"
"""The module of the program `signoff`."""
STARTING: Final = frozenset(
    {
        "demo",
        "tools.bench",
        "tools.bench.external_calls",
        "tools.bench.memory",
        "tools.bench.scale",
        "tools.bench.scale.week",
    }
)
"""Programs of ours that start `signoff`, each time as a fork. Other programs started with `-m` are excluded."""
_WORKERS: Final = ("held_worker.py", "killable_stack.py", "killable_worker.py", "subscriber_worker.py")
SHELL_FORK: Final = HERE / "shell_fork.py"
FORKED_FILES: Final = frozenset(str(HERE / name) for name in _WORKERS)
"""Programs of the tests that are not about import behaviour."""
IMPORTED: Final = ("signoff.cli.local.gateway", "signoff.cli.local.worker", "signoff.cli.local.codec")
_SET_SUBREAPER: Final = 36
_MESSAGE_BYTES: Final = 1 << 20
_OUTPUT_OPTIONS: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""Options that can be set after a process's start."""
_PLAIN: Final[dict[str, Any]] = {
    "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False, "restore_signals": True,
    "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""Start options that have no effect beyond a fork's."""


class ForkRequest(TypedDict):
    words: list[str]
    cwd: str
    env: dict[str, str]
    session: bool


def forkable_words(args: Any, env: Mapping[str, str]) -> list[str] | None:
    words = [os.fsdecode(each) for each in args] if isinstance(args, list | tuple) else []
    if not words or _interpreter_options(env) != _OURS:
        return None
    if words[0] == sys.executable:
        if words[1:2] == ["-m"] and words[2:3] and words[2] in {PROGRAM, *STARTING}:
            return words[1:]
        return words[1:] if len(words) > 1 and words[1] in FORKED_FILES else None
    found = next((each for each in os.get_exec_path(dict(env)) if (Path(each) / "signoff").exists()), "")
    if words[0] == str(SIGNOFF) or (words[0] == "signoff" and Path(found) in (SIGNOFF.parent, SERVER.shell_folder)):
        return ["-m", PROGRAM, *words[1:]]
    return None


def _interpreter_options(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that the interpreter and the C library read at their start, and a fork does not."""
    names = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
    told = {name: value for name, value in env.items() if value and name.startswith(names)}
    # Python's default for no language.
    told = {"LANG": "C.UTF-8", **told}
    # The checkout itself, as in the benchmarks, hides no import.
    as_ever = {"LC_CTYPE": told["LANG"], "PYTHONPATH": str(HERE.parent)}
    return {name: value for name, value in told.items() if name not in _OUTPUT_OPTIONS and as_ever.get(name) != value}


_OURS: Final = _interpreter_options(os.environ)


class ForkServer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._address = _new_address()
        self.shell_folder: Path | None = None

    def start(self) -> None:
        """The server imports in the background: a later fork request does not wait for it."""
        with self._lock:
            self._peer = self._peer or self._start()

    def fork(self, request: ForkRequest, files: Sequence[int]) -> int:
        """Return the pid of a new child of this process. Raises `OSError` if the server has ended."""
        with self._lock:
            self._peer = peer = self._peer or self._start()
            # Only for this moment: at any other time orphans go to the system, as usual.
            _adopt_orphans(True)
            try:
                socket.send_fds(peer, [json.dumps(request).encode()], files)
                reply = peer.recv(_MESSAGE_BYTES)
            finally:
                _adopt_orphans(False)
        if not reply:
            raise OSError("the fork server has ended")
        return int(reply)

    def become_own(self) -> None:
        """Give this process, itself a fork, its own server, which ends with it. Its children must be its own, so that
        it can kill and await them.
        """
        self._address, self.shell_folder = _new_address(), None
        ours, theirs = self._pair()
        listener = self._listen()
        if os.fork() == 0:
            ours.close()
            serve(theirs, listener)
            os._exit(0)
        theirs.close()
        listener.close()
        self._peer = ours

    def shell_programs(self) -> Path:
        """The directory's `signoff` is a fork. It is removed with the tests."""
        self.start()
        with self._lock:
            if self.shell_folder is None:
                self.shell_folder = Path(tempfile.mkdtemp(prefix="signoff-forks-"))
                atexit.register(shutil.rmtree, self.shell_folder)
                program = self.shell_folder / "signoff"
                call = f"stand_for_fork({self._address!r}, {str(SIGNOFF)!r})\n"
                # Isolated and without packages: it takes a hundredth of a second.
                program.write_text(f"#!{sys.executable} -IS\n{SHELL_FORK.read_text(encoding='utf-8')}\n\n{call}")
                program.chmod(0o755)
            return self.shell_folder

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        return ours, theirs

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(f"\0{self._address}")
        listener.listen(64)
        return listener

    def _start(self) -> socket.socket:
        ours, theirs = self._pair()
        with theirs, self._listen() as listener:
            numbers = (theirs.fileno(), listener.fileno())
            # The tests' own end is closed in it, so that it ends with them.
            child = subprocess.Popen([sys.executable, __file__, *map(str, numbers)], pass_fds=numbers)
        atexit.register(self._end, child)
        return ours

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        if self._peer is not None:
            self._peer.close()
        child.wait()


def _new_address() -> str:
    """A Linux abstract name leaves no file."""
    return f"signoff-forks-{uuid.uuid4().hex}"


SERVER: Final = ForkServer()


class ForkingPopen(subprocess.Popen[Any]):
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
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def serve(peer: socket.socket, listener: socket.socket) -> None:
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a fork has but one thread: what the others held would be held for ever"
    while True:
        ready, _, _ = select.select([peer, listener], [], [])
        if peer in ready:
            message, files, _, _ = socket.recv_fds(peer, _MESSAGE_BYTES, 3)
            if not message:
                return
            _answer(peer, listener, json.loads(message), files)
        if listener in ready:
            with listener.accept()[0] as shell:
                _answer_shell(shell, peer, listener)


def _answer_shell(shell: socket.socket, peer: socket.socket, listener: socket.socket) -> None:
    """A keeper has the program as its child. It reports its end to the shell's placeholder, and ends with it."""
    message, files, _, _ = socket.recv_fds(shell, _MESSAGE_BYTES, 3)
    if message and os.fork() == 0:
        try:
            peer.close()
            listener.close()
            request: ForkRequest = json.loads(message)
            if _interpreter_options(request["env"]) == _OURS:
                _keep(shell, request, files)
        finally:
            os._exit(0)
    for file in files:
        os.close(file)
    # Ended keepers. Every other child of this process is awaited where it is created.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(shell: socket.socket, request: ForkRequest, files: Sequence[int]) -> None:
    child = os.fork()
    if child == 0:
        shell.close()
        _run(request, files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    with contextlib.suppress(OSError):
        shell.send(str(child).encode())
    either: list[Any] = [shell, ended]
    if shell in select.select(either, [], [])[0]:
        signal.pidfd_send_signal(ended, signal.SIGKILL)
    end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert end is not None
    with contextlib.suppress(OSError):
        shell.send(str(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status).encode())
        # Awaited only now: until the shell's placeholder has ended it may send signals to this pid.
        shell.recv(1)


def _answer(peer: socket.socket, listener: socket.socket, request: ForkRequest, files: Sequence[int]) -> None:
    told, tell = os.pipe()
    may_begin, begun = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child == 0:
            for each in (told, tell, begun):
                os.close(each)
            peer.close()
            listener.close()
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
    code = 1
    try:
        _become(request, files)
        words = request["words"]
        if words[1] in STARTING:
            SERVER.become_own()
            subprocess.Popen = ForkingPopen  # type: ignore[misc]
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
    # Environment values read at the start.
    time.tzset()
    if path := os.environ.get("PYTHONPATH"):
        # Never the first entry, which is the program's own directory.
        sys.path.insert(1, path)
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(write_through=at_once)  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    for imported in IMPORTED:
        importlib.import_module(imported)
    # Loads CEL's grammar, which takes a tenth of a second, into a cache, and nothing else.
    second_program("true")
    # These objects stay, also in each fork.
    gc.freeze()
    # An interrupt ends the tests, and they end this process.
    serve(*(socket.socket(fileno=int(each)) for each in sys.argv[1:]))
