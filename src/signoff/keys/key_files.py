"""Reads and writes files of signing keys: a private one that only the gateway may read, a public one for workers."""

import contextlib
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from signoff.contracts.errors import ConfigError
from signoff.formats.private_folder import make_private_folder
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKey, PrivateKeys, PublicKeys, Verifier, _Known, new_key

_OPEN_TO_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO
_MAKE: Final = "make one with `signoff keys create`"
_EXPORT: Final = "take the one that `signoff keys export` writes where the gateway is"
_log = logging.getLogger(__name__)
Keys = TypeVar("Keys", bound=BaseModel)


def read_private(path: Path) -> PrivateKeys:
    """Returns the gateway's keys. Raises `ConfigError` when there are none, they are no keys, or other users can read
    them.
    """
    return read_private_file(path, PrivateKeys, "signing_keys", _MAKE)


def read_public(path: Path) -> PublicKeys:
    """Returns a worker's keys. Raises `ConfigError` when there are none or they are no public keys."""
    return _read(path, PublicKeys, "public_keys", _EXPORT)


def read_private_file(path: Path, shape: type[Keys], field: str, remedy: str) -> Keys:
    """Returns the keys of a file that its owner alone may read, which the setting `field` names.

    Raises `ConfigError` when there are none, they are no keys, or other users can read them; `remedy` ends its
    sentence.
    """
    keys = _read(path, shape, field, remedy)
    # Refused, not repaired: who could read the keys may have done so, and people must hear of it.
    if path.stat().st_mode & _OPEN_TO_OTHERS:
        text = f"`{path}` holds private keys, and other users may read or change it: `chmod 600 {path}`"
        raise ConfigError(text, field=field)
    return keys


def parse_keys(text: str | bytes, where: str, shape: type[Keys], field: str, remedy: str) -> Keys:
    """Reads the JSON of keys that came from `where`. Raises `ConfigError`, which repeats nothing of it."""
    try:
        return shape.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{where} holds {_fault(error)}: {remedy}", field=field) from None


def create_key(private: Path, public: Path, now: datetime) -> PrivateKey:
    """Makes a new key, in both files beside those that are there; it signs once the gateway starts anew.

    Raises `ConfigError`.
    """
    there = read_private(private).keys if private.exists() else ()
    made = new_key(now)
    write_keys(PrivateKeys(keys=(*there, made)), private, public)
    return made


def retire_key(private: Path, public: Path, key_id: str, now: datetime) -> PrivateKey:
    """Ends what a key may vouch for at `now`; one that is retired already stays so. Raises `ConfigError`."""
    keys = read_private(private).keys
    found = next((key for key in keys if key.id == key_id), None)
    if found is None:
        known = ", ".join(f"`{key.id}`" for key in keys) or "none"
        raise ConfigError(f"there is no key `{key_id}` in `{private}`; known: {known}", field="signing_keys")
    if found.retired_at is not None:
        return found
    # A gateway does not start without a key in use, so the last one is not taken away first.
    if not any(key.retired_at is None for key in keys if key.id != key_id):
        raise ConfigError(f"`{key_id}` is the only key in use: make another first, with `signoff keys create`")
    retired = replace(found, retired_at=now)
    write_keys(PrivateKeys(keys=tuple(retired if key.id == key_id else key for key in keys)), private, public)
    return retired


def write_keys(keys: PrivateKeys, private: Path, public: Path) -> None:
    """Writes both files whole or not at all, the public one first: nothing signs before it can be checked.

    Raises `ConfigError`.
    """
    write_public(keys.public(), public)
    write_private(private, keys)


def write_public(keys: PublicKeys, path: Path) -> None:
    """Writes the file for workers. Raises `ConfigError` when it cannot be written."""
    _write(path, keys, 0o644)


def write_private(path: Path, keys: BaseModel, *, replace: bool = True) -> None:
    """Writes a file that its owner alone may read, whole; an older one stays unless `replace`. Raises `ConfigError`."""
    _write(path, keys, 0o600, replace=replace)


def ensure_development_keys(private: Path, public: Path, now: datetime) -> PrivateKeys:
    """Returns the keys of the development profile, made on first use; the public file is written anew where it differs.

    Raises `ConfigError`.
    """
    if not private.exists():
        # Of two that start at once, the second must not put its key over the one that the first signs with.
        write_private(private, PrivateKeys(keys=(new_key(now),)), replace=False)
    keys = read_private(private)
    # The public file is made of the private one: whatever is wrong with it, it is written anew.
    with contextlib.suppress(ConfigError):
        if read_public(public) == keys.public():
            return keys
    write_public(keys.public(), public)
    return keys


class FileVerifier(Verifier):
    """Verifies by the keys in a public file, read again when the file changes.

    It is looked at for every signature, which costs microseconds: a gateway signs with a new key at once. While the
    file is missing nothing is believed, unless keys were there before: those stay in force, as they do while it cannot
    be read.
    """

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` for a file that is there and holds no public keys."""
        self._path = path
        self._state = _file_state(path)
        super().__init__(read_public(path).keys if self._state is not None else ())

    def _index_keys(self) -> Mapping[str, _Known]:
        self._look()
        return super()._index_keys()

    def _look(self) -> None:
        state = _file_state(self._path)
        # A file that is gone may be about to be replaced: without any key every answer would be refused until then.
        if state is None or state == self._state:
            return
        # Before it is read: a file that cannot be read is told of once, not for every signature.
        self._state = state
        try:
            self._load(read_public(self._path).keys)
        except ConfigError as error:
            _log.warning("the keys known before stay in force: %s", error.message)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # Two versions may be of one moment and one size; a file that was moved into place has another inode.
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path, shape: type[Keys], field: str, remedy: str) -> Keys:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no file of keys `{path}`: {remedy}", field=field) from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}", field=field) from None
    return parse_keys(content, f"`{path}`", shape, field, remedy)


def _fault(error: ValidationError) -> str:
    # Never with the input: it may be a private key.
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    if any(fault["type"] == "extra_forbidden" and fault["loc"][-1] == "private" for fault in faults):
        return "private keys, which no worker may have"
    where = ".".join(map(str, faults[0]["loc"]))
    problem = faults[0]["msg"].removeprefix("Value error, ").partition(":")[0].lower()
    return f"no keys ({f'`{where}`: ' if where else ''}{problem})"


def _write(path: Path, keys: BaseModel, mode: int, *, replace: bool = True) -> None:
    """Writes `keys` as a file of that mode, whole from the moment it is there; an older one stays unless `replace`."""
    try:
        make_private_folder(path.parent)
        # In the same folder, as only there a rename is one step; `mkstemp` opens it for nobody but its owner.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(keys.model_dump_json(indent=2, exclude_none=True) + "\n")
                os.fchmod(file.fileno(), mode)
                # Before the rename: after a power cut the name must not stand for an empty file.
                os.fsync(file.fileno())
            if replace:
                temporary.replace(path)
            else:
                _place_first(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}") from None


def _place_first(temporary: Path, path: Path) -> None:
    """Gives a whole file its name, unless another has it: the first stays."""
    try:
        # A link fails where the name is taken, which a rename does not.
        path.hardlink_to(temporary)
    except FileExistsError:
        return
    except OSError:
        # Some file systems have no links. There the folder is locked, by everybody who finds that so.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not path.exists():
                temporary.replace(path)
        finally:
            os.close(folder)
