"""Reads and writes files of signing keys: private for the gateway, public for workers."""

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
_EXPORT: Final = "use the file that `signoff keys export` writes on the gateway"
_log = logging.getLogger(__name__)
Keys = TypeVar("Keys", bound=BaseModel)


def read_private(path: Path) -> PrivateKeys:
    """Raise `ConfigError` if there are no keys, if they are invalid, or if other users can read them."""
    return read_private_file(path, PrivateKeys, "signing_keys", _MAKE)


def read_public(path: Path) -> PublicKeys:
    """Raise `ConfigError` if there are no keys or they are not public."""
    return _read(path, PublicKeys, "public_keys", _EXPORT)


def read_private_file(path: Path, shape: type[Keys], field: str, remedy: str) -> Keys:
    """Read a file that only its owner may read, named by the setting `field`.

    Raises as `read_private`. `remedy` ends the error's message.
    """
    keys = _read(path, shape, field, remedy)
    # Fail instead of repairing the mode: other users may have read the keys already, and people must know.
    if path.stat().st_mode & _OPEN_TO_OTHERS:
        text = f"`{path}` holds private keys, and other users may read or change it: `chmod 600 {path}`"
        raise ConfigError(text, field=field)
    return keys


def parse_keys(text: str | bytes, where: str, shape: type[Keys], field: str, remedy: str) -> Keys:
    """Parse the JSON of keys. Raises `ConfigError`, which does not quote it."""
    try:
        return shape.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{where} holds {_fault(error)}: {remedy}", field=field) from None


def create_key(private: Path, public: Path, now: datetime) -> PrivateKey:
    """Add a new key to both files. It signs after the gateway's next start. Raises `ConfigError`."""
    existing = read_private(private).keys if private.exists() else ()
    created = new_key(now)
    write_keys(PrivateKeys(keys=(*existing, created)), private, public)
    return created


def retire_key(private: Path, public: Path, key_id: str, now: datetime) -> PrivateKey:
    """A retired key does not change. Raises `ConfigError`."""
    keys = read_private(private).keys
    key_now = next((key for key in keys if key.id == key_id), None)
    if key_now is None:
        known = ", ".join(f"`{key.id}`" for key in keys) or "none"
        raise ConfigError(f"there is no key `{key_id}` in `{private}`; known: {known}", field="signing_keys")
    if key_now.retired_at is not None:
        return key_now
    # A gateway does not start without an active key, so the last one must stay.
    if not any(key.retired_at is None for key in keys if key.id != key_id):
        raise ConfigError(f"`{key_id}` is the only key in use: make another first, with `signoff keys create`")
    retired = replace(key_now, retired_at=now)
    write_keys(PrivateKeys(keys=tuple(retired if key.id == key_id else key for key in keys)), private, public)
    return retired


def write_keys(keys: PrivateKeys, private: Path, public: Path) -> None:
    """Write both files completely or not at all, the public one first.

    A key must be known before it signs. Raises `ConfigError`.
    """
    write_public(keys.public(), public)
    write_private(private, keys)


def write_public(keys: PublicKeys, path: Path) -> None:
    """Raises `ConfigError`."""
    _write(path, keys, 0o644)


def write_private(path: Path, keys: BaseModel, *, replace: bool = True) -> None:
    """Make the file readable for its owner only. Keeps an existing file unless `replace`. Raises `ConfigError`."""
    _write(path, keys, 0o600, replace=replace)


def ensure_development_keys(private: Path, public: Path, now: datetime) -> PrivateKeys:
    """Create the development profile's keys at first use. Rewrites a differing public file. Raises `ConfigError`."""
    if not private.exists():
        # If two processes start at once, the second must not overwrite the key with which the first signs.
        write_private(private, PrivateKeys(keys=(new_key(now),)), replace=False)
    keys = read_private(private)
    # The public file is derived from the private one: rewrite it after any problem.
    with contextlib.suppress(ConfigError):
        if read_public(public) == keys.public():
            return keys
    write_public(keys.public(), public)
    return keys


class FileVerifier(Verifier):
    """Verifies with the keys in a public file, read again when the file changes.

    The file is checked for every signature, which takes microseconds: a gateway signs with a new key at once. Without a
    file nothing is accepted, unless keys were loaded before. These stay valid, also while the file is unreadable.
    """

    def __init__(self, path: Path) -> None:
        """Raise `ConfigError` for an existing file without public keys."""
        self._path = path
        self._state = _file_state(path)
        super().__init__(read_public(path).keys if self._state is not None else ())

    def _index_keys(self) -> Mapping[str, _Known]:
        self._look()
        return super()._index_keys()

    def _look(self) -> None:
        state = _file_state(self._path)
        # A missing file may be about to be replaced: without any key, every decision would be refused until then.
        if state is None or state == self._state:
            return
        # Set this before reading: an unreadable file is reported once, not for every signature.
        self._state = state
        try:
            self._load(read_public(self._path).keys)
        except ConfigError as error:
            _log.warning("the keys known before stay in force: %s", error.message)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # Two versions may have the same time and size. A file moved into place has another inode.
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path, shape: type[Keys], field: str, remedy: str) -> Keys:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no file of keys `{path}`: {remedy}", field=field) from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}", field=field) from None
    return parse_keys(content, f"`{path}`", shape, field, remedy)


def _fault(error: ValidationError) -> str:
    # Never include the input: it may be a private key.
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    if any(fault["type"] == "extra_forbidden" and fault["loc"][-1] == "private" for fault in faults):
        return "private keys, which no worker may have"
    where = ".".join(map(str, faults[0]["loc"]))
    problem = faults[0]["msg"].removeprefix("Value error, ").partition(":")[0].lower()
    return f"no keys ({f'`{where}`: ' if where else ''}{problem})"


def _write(path: Path, keys: BaseModel, mode: int, *, replace: bool = True) -> None:
    try:
        make_private_folder(path.parent)
        # Use the same directory, because only there a rename is atomic. `mkstemp` opens it for its owner only.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(keys.model_dump_json(indent=2, exclude_none=True) + "\n")
                os.fchmod(file.fileno(), mode)
                # Sync before the rename: after a power cut the name must not refer to an empty file.
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
    """Keep another file that already has the name."""
    try:
        # A link fails if the name exists, unlike a rename.
        path.hardlink_to(temporary)
    except FileExistsError:
        return
    except OSError:
        # Some file systems have no links. There, every process locks the directory instead.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not path.exists():
                temporary.replace(path)
        finally:
            os.close(folder)
