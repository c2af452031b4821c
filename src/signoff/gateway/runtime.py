"""Runs a gateway's background work: keys, channels, checkpoints of the audit log, and changes of people."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.config_snapshots import follow_people
from signoff.audit.event_deliveries import EventDeliveries
from signoff.channels.base import Channel
from signoff.channels.channel_loader import open_channels
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import StoreUnavailable
from signoff.engine.credential_check import check_store_role
from signoff.gateway.auth.oidc import check_secret
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_sender import send_events
from signoff.gateway.events.event_task import keep_events, record_progress
from signoff.gateway.history.request_indexer import keep_history
from signoff.gateway.vendors.calendar_task import keep_calendars
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.gateway.vendors.on_call_task import keep_rotas
from signoff.keys.key_files import ensure_development_keys, read_private
from signoff.keys.signatures import Signer
from signoff.people.directory import Directory
from signoff.plugins.loader import Plugins
from signoff.settings import Settings, login_roles, require_ready
from signoff.store.store import Store
from signoff.store.tokens import Tokens

_CHECKPOINT_SECONDS: Final = 60.0
"""Longest wait of an audit entry for a checkpoint, while a gateway runs."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def gateway_tasks(deps: GatewayDeps, people: Directory) -> AsyncIterator[InboundReceiver | None]:
    """Run the background tasks until the block ends.

    Yields the receiver of vendors' messages. `people` is the directory without vouched logins. Logs a warning for each
    channel that cannot be opened; the others run. Raises `ConfigError` if the sign-in provider's secret cannot be read.
    """
    await check_secret(deps.settings, deps.secrets)
    async with (
        keep_checkpoints(deps.store, deps.signer),
        keep_events(deps.events, EventDeliveries(deps.store), deps.settings.event_days),
        record_progress(deps),
        keep_history(deps),
        send_events(deps),
        follow_people(deps.store, people, "gateway", clock=deps.clock),
        keep_calendars(deps),
        keep_rotas(deps),
        run_channels(deps, await _channels(deps), deps.catalog.channels.routing) as receiver,
    ):
        yield receiver


async def gateway_signer(settings: Settings, people: Directory, store: Store) -> Signer:
    """The development profile makes the keys on its first start.

    Raises `ConfigError` with everything that a production profile lacks, for a file without keys, and for a worker's
    store address.
    """
    check_store_role(store, "gateway")
    if settings.profile == "development":
        return Signer(ensure_development_keys(settings.signing_keys, settings.public_keys, system_clock()))
    await check_gateway_start(settings, people, store)
    # Read, never made: workers would refuse signatures by a key whose public half they lack.
    signer = Signer(read_private(settings.signing_keys))
    if problem := await signer_problem(store, signer):
        # Only a warning: if the old keys are lost, new ones must do.
        _log.warning("%s", problem)
    return signer


async def check_gateway_start(settings: Settings, people: Directory, store: Store) -> None:
    """Raise `ConfigError` with everything that the production profile lacks."""
    login = settings.oidc_issuer is not None or settings.email_sign_in != "" or await _has_tokens(people, store)
    has_people = any(person.active for person in people.all()) or bool(login_roles(settings))
    require_ready(settings, people=has_people, signing_keys=settings.signing_keys.exists(), login=login)


async def signer_problem(store: Store, signer: Signer) -> str:
    """Return a warning if the keys have not signed the store's audit log, else ""."""
    last = await Checkpoints(store).last()
    if last is None or last.key_id in signer.verifier().key_ids:
        return ""
    return (
        f"the signing keys here have not signed this store's record, which the key `{last.key_id[:16]}` has: restore "
        "that key, or its signatures become invalid"
    )


async def _channels(deps: GatewayDeps) -> dict[str, Channel]:
    declared = deps.catalog.channels.declared.values()
    plugins = Plugins(deps.settings.plugins)
    opened, problems = await open_channels(
        declared,
        deps.store,
        public_url=deps.settings.public_url,
        clock=deps.clock,
        secrets=deps.secrets,
        plugins=plugins,
    )
    for problem in problems:
        _log.warning("channel `%s` does not run: %s", problem.channel, problem.what)
    return opened


async def _has_tokens(people: Directory, store: Store) -> bool:
    now = system_clock()
    for tenant in {person.tenant for person in people.all()}:
        for token in await Tokens(store).all(tenant):
            if token.revoked_at is None and now < token.expires_at:
                return True
    return False


@asynccontextmanager
async def keep_checkpoints(
    store: Store, signer: Signer | None, *, every: float = _CHECKPOINT_SECONDS
) -> AsyncIterator[None]:
    """Sign a checkpoint each `every` seconds if there are new entries, and one at the end of the block.

    Without a signer it signs none. An outage of the store never ends the block.
    """
    if signer is None:
        yield
        return
    keeping = asyncio.create_task(_keep(store, signer, every))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await _take(store, signer)


async def _keep(store: Store, signer: Signer, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await _take(store, signer)


async def _take(store: Store, signer: Signer) -> None:
    try:
        await Checkpoints(store).take(signer)
    except StoreUnavailable as error:
        _log.warning("no checkpoint of the record was written: %s", error.message)
