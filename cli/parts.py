"""The parts of a running Signoff that work, each for the length of a block: worker and gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client

from signoff.audit.standing import note_catalog, people_followed
from signoff.cli.words import utc_now
from signoff.cli.workplace import Workplace
from signoff.client import Signoff
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.keeping import checkpoints_kept
from signoff.gateway.serve import serve
from signoff.keyfiles import FileVerifier, ensure_development_keys, read_private
from signoff.registry.deciders import check_deciders
from signoff.settings import login_roles, require_ready
from signoff.signing import Signer
from signoff.store.store import Store
from signoff.store.tokens import Tokens
from signoff.worker import build_worker, furnish, quicken


@asynccontextmanager
async def running_worker(
    place: Workplace, client: Client, store: Store, *, task_queue: str
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker until the block ends, then shut down; the task ends early only if the worker fails.

    Policies and people that differ from those last recorded are recorded, at the start and when they change.
    Raises `ConfigError` for a model without a driver, a tool that nobody could ever approve, or a production profile
    that lacks something.
    """
    settings = place.settings
    # The public file alone: whoever takes a worker over must not be able to sign.
    verifier = FileVerifier(settings.public_keys)
    require_ready(settings, people=_has_people(place), public_keys=bool(verifier.key_ids))
    check_deciders(place.catalog, place.people, by_login=login_roles(settings))
    room = await furnish(
        place.catalog,
        store,
        people=place.people,
        profile=settings.profile,
        model=settings.model,
        verifier=verifier,
    )
    worker = build_worker(client, room, task_queue=task_queue)
    where = f"worker {task_queue}"
    await note_catalog(store, place.catalog, where)
    async with people_followed(store, place.people, where):
        quicken()
        task = asyncio.create_task(worker.run())
        try:
            yield task
        finally:
            await worker.shutdown()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def running_gateway(place: Workplace, signoff: Signoff, store: Store) -> AsyncIterator[asyncio.Task[None]]:
    """The gateway, which answers when the block begins, until it ends.

    It signs checkpoints of the record meanwhile, and records whom it knows where that changes.

    Raises `ServerUnavailable` for a taken port, `ConfigError` for a production profile that lacks something.
    """
    settings = place.settings
    deps = GatewayDeps(
        desk=signoff,
        catalog=place.catalog,
        people=place.people,
        store=store,
        settings=settings,
        signer=await gateway_signer(place, store),
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    async with checkpoints_kept(store, deps.signer), people_followed(store, place.people, "gateway"):
        task = asyncio.create_task(serve(build_app(deps), settings.host, settings.port, stop=stop, ready=ready.set))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield task
        finally:
            waiting.cancel()
            stop.set()
            await asyncio.gather(task, return_exceptions=True)


async def gateway_signer(place: Workplace, store: Store) -> Signer:
    """The gateway's keys; the development profile makes them on its first start.

    Raises `ConfigError` that names all that a production profile lacks, or for a file that holds no keys.
    """
    settings = place.settings
    if settings.profile == "development":
        return Signer(ensure_development_keys(settings.signing_keys, settings.public_keys, utc_now()))
    login = settings.oidc_issuer is not None or await _has_tokens(place, store)
    there = settings.signing_keys.exists()
    require_ready(settings, people=_has_people(place), signing_keys=there, login=login)
    return Signer(read_private(settings.signing_keys))


def _has_people(place: Workplace) -> bool:
    return any(person.active for person in place.people.all()) or bool(login_roles(place.settings))


async def _has_tokens(place: Workplace, store: Store) -> bool:
    now = utc_now()
    for tenant in {person.tenant for person in place.people.all()}:
        for token in await Tokens(store).all(tenant):
            if token.revoked_at is None and now < token.expires_at:
                return True
    return False
