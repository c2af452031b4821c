"""`keys`: keys that sign and verify decisions, and keys that encrypt Temporal's data."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from signoff.approvals.argument_rows import plural
from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import AuditLog
from signoff.cli.local.installation import account
from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.contracts.names import DEFAULT_TENANT
from signoff.keys.encryption_keys import (
    EncryptionKey,
    create_encryption_key,
    parse_encryption_keys,
    read_encryption_keys,
)
from signoff.keys.key_files import create_key, read_private, read_public, retire_key, write_public
from signoff.keys.signatures import PublicKey, PublicKeys, Signer
from signoff.registry.installation import provider_of_secrets
from signoff.settings import Settings, encryption_file, load_settings
from signoff.store.store import working_store

app = typer.Typer(
    help="The keys that prove decisions and encrypt Temporal's data.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def create(
    encryption: Annotated[
        bool,
        typer.Option(
            "--encryption", help="Make only an encryption key. If there are others, it encrypts after 10 min."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a signing key, and the first encryption key if there is none. A signing key signs after the gateway's
    restart: give workers the public file before.
    """

    async def body(out: Output) -> int:
        settings = load_settings()
        rows: dict[str, Any] = {}
        words: list[str] = []
        if not encryption:
            rows, words = await _create_signing_key(settings)
        if encryption or _lacks_encryption_keys(settings):
            made, more = await _create_encryption_key(settings)
            rows, words = rows | made, [*words, *more]
        out.show(rows, *words)
        return 0

    run(body, as_json=as_json)


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the keys of the gateway. Without private keys, list the public keys of this worker."""

    async def body(out: Output) -> int:
        settings = load_settings()
        if settings.signing_keys.exists():
            private = read_private(settings.signing_keys)
            # `Signer` needs a key in use; a list shows retired keys too.
            signing = Signer(private).key_id if any(key.retired_at is None for key in private.keys) else ""
            keys = private.public()
        else:
            keys, signing = read_public(settings.public_keys), ""
        encrypting = await _known_encryption_keys(settings)
        rows = [_row(key) | {"for": "signing", "signs": key.id == signing} for key in keys.keys]
        rows += [each.model_dump(mode="json", exclude={"secret"}) | {"for": "encryption"} for each in encrypting]
        out.show(rows, _table(keys, signing), *_encryption_table(encrypting))
        return 0

    run(body, as_json=as_json)


@app.command()
def retire(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, as `signoff keys list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Retire a key: it vouches for nothing new from now on, and earlier signatures stay valid."""

    async def body(out: Output) -> int:
        settings = load_settings()
        retired = retire_key(settings.signing_keys, settings.public_keys, key, system_clock()).public_half()
        words = [
            f"key {retired.id} is retired since {_time(retired.retired_at)}; its earlier signatures stay valid",
            f"give workers {settings.public_keys}, and restart the gateway if it still signs with it",
            *await _record(settings, "keys retire", retired.id),
        ]
        out.show(_row(retired) | _files(settings), *words)
        return 0

    run(body, as_json=as_json)


@app.command()
def export(
    to: Annotated[Path | None, typer.Option("--out", help="The file to write; else it is printed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print or write the public file for workers."""

    async def body(out: Output) -> int:
        settings = load_settings()
        keys = read_private(settings.signing_keys).public()
        if to is None:
            out.show(keys.model_dump(mode="json", exclude_none=True), keys.model_dump_json(indent=2, exclude_none=True))
            return 0
        write_public(keys, to)
        found = {"public_keys": str(to), "keys": [key.id for key in keys.keys]}
        where = "each worker has it in its SIGNOFF_STATE_DIR, or names it in SIGNOFF_PUBLIC_KEYS"
        out.show(found, f"{to} holds {plural(len(keys.keys), 'public key')}; {where}")
        return 0

    run(body, as_json=as_json)


async def _create_signing_key(settings: Settings) -> tuple[dict[str, Any], list[str]]:
    made = create_key(settings.signing_keys, settings.public_keys, system_clock())
    words = [
        f"key {made.id} is made",
        f"private  {settings.signing_keys}  (0600, for the gateway alone)",
        f"public   {settings.public_keys}  (for every worker; it holds no secret)",
        "it signs after the gateway's restart; workers reload the public file without one",
        *await _record(settings, "keys create", made.id),
    ]
    return _row(made.public_half()) | _files(settings), words


async def _create_encryption_key(settings: Settings) -> tuple[dict[str, Any], list[str]]:
    path = encryption_file(settings)
    if path is None:
        raise ConfigError(
            f"encryption keys are read from `{settings.encryption_keys}`, where this command cannot write: make a file "
            "with SIGNOFF_ENCRYPTION_KEYS=file:PATH, and put its content there",
            field="encryption_keys",
        )
    made = create_encryption_key(path, system_clock())
    when = "from now on" if made.writes_from <= made.created_at else f"from {_time(made.writes_from)}"
    words = [
        f"encryption key {made.id} is made",
        f"secret   {path}  (0600; every worker, gateway and codec server needs it before it encrypts)",
        f"it encrypts {when}, and is needed as long as Temporal keeps data encrypted with it: back it up",
        *await _record(settings, "keys create", made.id),
    ]
    row = {"encryption_key": made.id, "writes_from": made.writes_from.isoformat(), "encryption_keys": str(path)}
    return row, words


def _lacks_encryption_keys(settings: Settings) -> bool:
    path = encryption_file(settings)
    return path is not None and not path.exists()


async def _known_encryption_keys(settings: Settings) -> tuple[EncryptionKey, ...]:
    path = encryption_file(settings)
    if path is None:
        where = f"the secret behind `{settings.encryption_keys}`"
        return parse_encryption_keys(await provider_of_secrets(settings).read(settings.encryption_keys), where).keys
    return read_encryption_keys(path).keys if path.exists() else ()


def _encryption_table(keys: Sequence[EncryptionKey]) -> list[Table]:
    if not keys:
        return []
    now = system_clock()
    due = [key for key in keys if key.writes_from <= now] or list(keys)[:1]
    writer = max(due, key=lambda key: key.writes_from)
    table = Table("encryption key", "made", "encrypts from", "use", box=None, pad_edge=False)
    for key in keys:
        use = "encrypts" if key is writer else "decrypts" if key.writes_from <= now else "decrypts, and encrypts soon"
        table.add_row(key.id, _time(key.created_at), _time(key.writes_from), use)
    return [table]


async def _record(settings: Settings, name: str, key: str) -> list[str]:
    """Record an act once. If the store fails, the act stays done, and the returned words report it."""
    entry = admin_entry(
        DEFAULT_TENANT, name, "", system_clock(), key=f"{name}/{key}", key_id=key, channel="cli", account=account()
    )
    try:
        async with working_store(settings) as store:
            await AuditLog(store).append([entry])
    except (ConfigError, StoreUnavailable) as error:
        return [f"not recorded: {error.message}"]
    return []


def _row(key: PublicKey) -> dict[str, Any]:
    return key.model_dump(mode="json")


def _files(settings: Settings) -> dict[str, str]:
    return {"signing_keys": str(settings.signing_keys), "public_keys": str(settings.public_keys)}


def _table(keys: PublicKeys, signing: str) -> Table:
    table = Table("key", "made", "retired", "use", box=None, pad_edge=False)
    for key in keys.keys:
        use = "signs" if key.id == signing else "checks" if key.retired_at is None else "checks what is older"
        table.add_row(key.id, _time(key.created_at), _time(key.retired_at), use)
    return table


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")
