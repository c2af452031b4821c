"""The shared dependencies of one worker's activities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from signoff.activities.hooks.permissions import PermissionCache, PermissionReader
from signoff.activities.mcp.tool_servers import ToolServers
from signoff.activities.models.offline_model import OfflineModel
from signoff.activities.run_rules import SignaturePolicy, is_believed, is_expired, is_subscription
from signoff.approvals.redaction import secret_values
from signoff.contracts.call import CallContext, Place
from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.people.vouched_directory import VouchedDirectory, joined_logins, vouched_people
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.store.content_store import is_sealed
from signoff.store.store import Store
from signoff.store.vouched_people import VouchedPeople

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender

Profile = Literal["development", "production"]


@dataclass(frozen=True)
class WorkerDeps:
    """One worker's catalog, store, directory and settings.

    - `people` are the declared people. `directory_for` also finds people with a vouched login.
    - `mark_key` makes the short digest on cards.
    - `raw_answers`: if false, the development profile accepts no unsigned answer and no unsigned start.
    - `verifier`: a worker without one accepts no signature.
    - `backends` are by kind of capability. A tool that declares another kind does not run here.
    - `secrets` reads the secrets of tools and models, and redacts them from all messages here.
    - `clock` decides whether a tool is within its hours.
    - `public_url` is the inbox's address for links in Temporal's UI, "" if unknown.
    - `result_chars` is the default limit of result characters that a model reads of one completion's calls together.
    - `tenant_limits` limit the pending requests of a tenant.
    - `permission_cache` holds recent answers of permission checks.
    - `trace`: if true, each call is traced, see `traces`.
    - `spans` sends the spans of activities, if wanted.
    - `servers` run the tools imported from them.
    """

    catalog: Catalog
    store: Store
    people: Directory
    drivers: Mapping[str, Driver]
    mark_key: bytes
    profile: Profile = "development"
    raw_answers: bool = True
    verifier: Verifier = field(default_factory=Verifier)
    backends: Mapping[str, Backend] = field(default_factory=dict)
    secrets: SecretProvider = field(default_factory=SecretProvider, repr=False)
    clock: Clock = system_clock
    public_url: str = ""
    result_chars: int = RESULT_CHARS_PER_BATCH
    tenant_limits: TenantLimits = NO_LIMITS
    trace: bool = False
    permission_cache: PermissionCache = field(default_factory=PermissionCache, repr=False)
    spans: "SpanSender | None" = field(default=None, repr=False)
    servers: ToolServers | None = field(default=None, repr=False)

    @property
    def permissions(self) -> PermissionReader:
        return PermissionReader(self.catalog, self.store, self.directory_for, self.clock, self.permission_cache)

    def driver(self, model: str) -> Driver:
        """Raises `ConfigError` without a driver."""
        driver = self.drivers.get(model)
        if driver is None:
            raise ConfigError(f"no driver for the model `{model}`", field="model", value=model)
        return driver

    def is_offline(self, actor: str) -> bool:
        known = self.catalog.actors.get(actor)
        return known is not None and isinstance(self.drivers.get(known.model), OfflineModel)

    def result_budget(self, actor: str, calls: int) -> int:
        """The maximum characters of a result for the model, with `calls` calls in one completion."""
        known = self.catalog.actors.get(actor)
        total = self.result_chars if known is None or known.result_chars is None else known.result_chars
        return total // max(calls, 1)

    def traces(self, ctx: CallContext) -> bool:
        """Return whether log and record show the meaning of each tool name: in all turns, an actor's, or this one."""
        actor = self.catalog.actors.get(ctx.actor)
        return self.trace or ctx.trace or (actor is not None and actor.trace)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({*self.backends, "secrets"})

    @property
    def signature_policy(self) -> SignaturePolicy:
        return SignaturePolicy(self.verifier, development=self.believes_unsigned)

    @property
    def believes_unsigned(self) -> bool:
        """Whether unsigned starts and answers count for every tool: in development, unless switched off."""
        return self.profile == "development" and self.raw_answers

    async def requester_problem(self, ctx: CallContext) -> str:
        """Return why the gateway does not vouch for the requester in `ctx`, or "". Raises `StoreUnavailable`."""
        return self.signature_policy.requester_problem(await self.as_asked(ctx))

    async def as_asked(self, ctx: CallContext) -> CallContext:
        """Return `ctx` with its requester's own route and step, if a seal proves the present place.

        Raises `StoreUnavailable`.
        """
        place = Place(actor=ctx.actor, route=ctx.route, step=ctx.step, seal=ctx.seal)
        if await is_sealed(self.store, SessionKey(ctx.tenant, ctx.session), place):
            return replace(ctx, route=ctx.user.route, step=ctx.user.step)
        return ctx

    async def directory_for(self, tenant: str, *ids: str) -> Directory:
        """Return the directory for a question about the people `ids`.

        Looks up undeclared people among vouched logins, whose signatures are checked. Raises `StoreUnavailable`: a
        failed lookup does not make a person a stranger.
        """
        unknown = tuple({each for each in ids if each and self.people.find(each, tenant) is None})
        if not unknown:
            return self.people
        rows = await VouchedPeople(self.store).find(tenant, unknown)
        known = vouched_people(rows, self.people, self.verifier, self.clock())
        return VouchedDirectory(self.people, known, joined_logins(rows, self.people, self.verifier))

    def secrets_of(self, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
        """Return the secret values that must not appear in a turn's texts: those read by this worker, and the texts in
        secret arguments of `calls`, given as tool names with arguments. Unknown tools have no secret arguments.
        """
        found = set(self.secrets.known_values)
        for name, args in calls:
            # Include any tool of this name, even one outside the turn: it received its secret.
            for tool in self.catalog.tools_named(name):
                found |= secret_values(args, tool.masked_arguments)
        return frozenset(found)

    async def doubt(self, ctx: CallContext) -> str:
        """Return why no rule permits a call of `ctx` without approval, or "": the requester differs from the directory,
        or asked too long ago. Raises `StoreUnavailable`.
        """
        people = await self.directory_for(ctx.tenant, ctx.user.user)
        person = people.find(ctx.user.user, ctx.tenant)
        if person is None and is_subscription(ctx, self.catalog.subscriptions.values()):
            is_confirmed = True
        else:
            is_confirmed = is_believed(ctx, person, development=self.profile == "development")
        # Rules may depend on the person: an account that belongs to another person now differs from the turn's claim.
        if not is_confirmed or people.person_id(ctx.user.user, ctx.tenant) != ctx.user.human:
            return "the requester does not match the directory"
        return "it is too long ago that this was asked for" if is_expired(ctx.user, self.clock()) else ""
