"""Holds what every activity of one worker shares."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from signoff.activities.hooks.permissions import PermissionCache, PermissionReader
from signoff.activities.mcp.tool_servers import ToolServers
from signoff.activities.permit_check import SignaturePolicy, is_believed, is_expired, is_subscription
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
    """Holds one worker's catalog, store and directory; `mark_key` makes the short digest that cards show.

    Without `raw_answers` the development profile takes no answer and no start that nobody signed.

    `people` are those declared; `directory_for` finds those as well for whom a login vouched. A worker without a
    `verifier` believes no signature. `backends` are by kind of capability; a tool that declares another does not run
    here. `secrets` reads what tools and models need, and hides it in all that is told here.
    `clock` tells whether it is within the hours of a tool. `public_url` is where people reach the inbox, "" where
    nobody named an address: it only leads there from what Temporal shows. `result_chars` are the characters of results
    that a model reads of one completion's calls together, where its actor does not say how many. `tenant_limits` say
    how many requests of a tenant may wait. `permission_cache` holds what permission checks said, for a while. With
    `trace` each call is traced, see `traces`.
    `spans` sends the spans of activities, where they are wanted. `servers` run the tools that were imported of them.
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
        """The reader of permissions, by the catalog and the people of this worker."""
        return PermissionReader(self.catalog, self.store, self.directory_for, self.clock, self.permission_cache)

    def driver(self, model: str) -> Driver:
        """Returns the driver of an actor's model string. Raises `ConfigError` when there is none."""
        driver = self.drivers.get(model)
        if driver is None:
            raise ConfigError(f"no driver for the model `{model}`", field="model", value=model)
        return driver

    def result_budget(self, actor: str, calls: int) -> int:
        """Returns how many characters of its result each of `calls` calls of one completion may hand to the model."""
        known = self.catalog.actors.get(actor)
        total = self.result_chars if known is None or known.result_chars is None else known.result_chars
        return total // max(calls, 1)

    def traces(self, ctx: CallContext) -> bool:
        """Returns whether log and record tell which tool each name means: in all turns, an actor's, or this one."""
        actor = self.catalog.actors.get(ctx.actor)
        return self.trace or ctx.trace or (actor is not None and actor.trace)

    @property
    def kinds(self) -> frozenset[str]:
        """Returns the kinds of capability that this worker has."""
        return frozenset({*self.backends, "secrets"})

    @property
    def signature_policy(self) -> SignaturePolicy:
        """The policy by which signatures are checked here."""
        return SignaturePolicy(self.verifier, development=self.believes_unsigned)

    @property
    def believes_unsigned(self) -> bool:
        """Whether starts and answers without a signature count for every tool: in development, unless switched off."""
        return self.profile == "development" and self.raw_answers

    async def requester_problem(self, ctx: CallContext) -> str:
        """Returns why the gateway does not vouch for who asked for the turn of `ctx`; "" when it does.

        Raises `StoreUnavailable`.
        """
        return self.signature_policy.requester_problem(await self.as_asked(ctx))

    async def as_asked(self, ctx: CallContext) -> CallContext:
        """Returns `ctx` at the route and step that its user asked for, where a seal proves the way to those it names.

        Raises `StoreUnavailable`.
        """
        place = Place(actor=ctx.actor, route=ctx.route, step=ctx.step, seal=ctx.seal)
        if await is_sealed(self.store, SessionKey(ctx.tenant, ctx.session), place):
            return replace(ctx, route=ctx.user.route, step=ctx.user.step)
        return ctx

    async def directory_for(self, tenant: str, *ids: str) -> Directory:
        """Returns the directory as it is now for a question about the people `ids`.

        Whoever of them is not declared is looked up among those whom logins vouched for, whose signatures are checked.
        Raises `StoreUnavailable`: that somebody cannot be looked up does not make them a stranger.
        """
        unknown = tuple({each for each in ids if each and self.people.find(each, tenant) is None})
        if not unknown:
            return self.people
        rows = await VouchedPeople(self.store).find(tenant, unknown)
        known = vouched_people(rows, self.people, self.verifier, self.clock())
        return VouchedDirectory(self.people, known, joined_logins(rows, self.people, self.verifier))

    def secrets_of(self, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
        """Returns the secret values that may not stand in a text of a turn: what this worker read of secrets, and the
        texts within the secret arguments of `calls`.

        `calls` are tools' names and their arguments; of tools that nobody knows there are no secret arguments.
        """
        found = set(self.secrets.known_values)
        for name, args in calls:
            # What any tool of this name hides, also one that the turn does not see: its secret was told all the same.
            for tool in self.catalog.tools_named(name):
                found |= secret_values(args, tool.masked_arguments)
        return frozenset(found)

    async def doubt(self, ctx: CallContext) -> str:
        """Returns why no rule lets a call of `ctx` pass without a person; "" when rules may.

        Its requester is not who the directory says, or asked too long ago. Raises `StoreUnavailable`.
        """
        people = await self.directory_for(ctx.tenant, ctx.user.user)
        person = people.find(ctx.user.user, ctx.tenant)
        if person is None and is_subscription(ctx, self.catalog.subscriptions.values()):
            believed = True
        else:
            believed = is_believed(ctx, person, development=self.profile == "development")
        # Rules may branch on the human too: one who is somebody else's account by now is not who the turn says.
        if not believed or people.person_id(ctx.user.user, ctx.tenant) != ctx.user.human:
            return "who asked for this is not, or no longer, who the directory says"
        return "it is too long ago that this was asked for" if is_expired(ctx.user, self.clock()) else ""
