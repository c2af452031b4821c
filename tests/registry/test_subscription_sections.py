from pathlib import Path

import pytest
from tables import table

from signoff.audit.events import EVENT_TYPES
from signoff.contracts.audit import EVENT_NAMES
from signoff.contracts.errors import ConfigError
from signoff.registry.manifest.loader import load_manifest

MANIFEST = """
version: 1
actors: {desk: {model: "openai:gpt-5"}}
tools:
  pay: {handler: "paid_tools:pay", scope: generalist, requires_approval: true}
subscriptions:
  feed: {%s}
"""
HANDLER = '''
async def pay(amount: float) -> str:
    """Pays."""
    return "paid"


async def report(event: object) -> None:
    """Takes an event."""


def plain(event: object) -> None:
    """Is no async function."""


async def two(event: object, more: object) -> None:
    """Takes too much."""
'''
GOOD = 'events: ["approval.*", "tool_call:pay"], url: "https://a.example/x", secret: "env:A"'


def load(folder: Path, written: str) -> None:
    (folder / "paid_tools.py").write_text(HANDLER)
    (folder / "signoff.yaml").write_text(MANIFEST % written)
    load_manifest(folder / "signoff.yaml")


def test_manifest_subscription_is_read(tmp_path: Path) -> None:
    load(tmp_path, GOOD)
    catalog = load_manifest(tmp_path / "signoff.yaml")
    feed = catalog.subscriptions["feed"]
    assert (feed.url, feed.secret, feed.tenant, feed.actor) == ("https://a.example/x", "env:A", "main", "")
    kinds = ("approval.decided", "tool_call:pay", "tool_call:payout", "grant.created")
    assert [feed.wants(kind) for kind in kinds] == [True, True, False, False]
    (tmp_path / "signoff.yaml").write_text((MANIFEST % GOOD).partition("subscriptions")[0])
    assert load_manifest(tmp_path / "signoff.yaml").hash == catalog.hash


def test_subscription_that_starts_an_actor_is_read(tmp_path: Path) -> None:
    load(tmp_path, 'events: ["tool_call:pay"], to: actor:desk, turnsPerMinute: 3')
    feed = load_manifest(tmp_path / "signoff.yaml").subscriptions["feed"]
    assert (feed.starts, feed.turns_per_minute, feed.requester) == ("desk", 3, "subscription:feed")


@table(
    ("written", "why"),
    ("to: actor:dessk", "is to the actor `dessk`, which is not declared; did you mean `desk`"),
    ("to: actor:agent", "is to `agent`, an external agent"),
    ('to: actor:desk, url: "https://a.example/x"', "has a `url`, which an actor does not use"),
    ('to: actor:desk, handler: "paid_tools:report"', "needs a `handler` where it says"),
    ("to: actor:desk, turnsPerMinute: 0", "needs `turns_per_minute` from 1 to 600"),
    ("to: 'actor:'", "`to`"),
)
def test_subscription_to_an_invalid_actor_is_refused_with_its_line(tmp_path: Path, written: str, why: str) -> None:
    agent = MANIFEST.replace("desk: {model", 'agent: {external: {acts_for: ["user:guest"]}}, desk: {model')
    (tmp_path / "paid_tools.py").write_text(HANDLER)
    (tmp_path / "signoff.yaml").write_text(agent % f'events: ["tool_call:pay"], {written}')
    with pytest.raises(ConfigError, match=f"signoff.yaml:7: .*{why}"):
        load_manifest(tmp_path / "signoff.yaml")


@table(
    ("before", "after", "why"),
    ("tool_call:pay", "tool_call:payy", "there is no tool `payy`; did you mean `pay`"),
    ("approval.*", "aproval.*", "which no event is"),
    ("approval.*", "approval.decide", "did you mean `approval.decided`"),
    ("https://a.example/x", "ftp://a.example", "needs a `url`"),
    ("https://a.example/x", "https://me:x@a.example", "needs a `url`"),
    ("https://a.example/x", "https://:x@a.example", "needs a `url`"),
    ("https://a.example/x", "https://a b.example", "needs a `url`"),
    ("https://a.example/x", "https://[::1/x", "needs a `url`"),
    ("https://a.example/x", "https://a.example:99999/x", "needs a `url`"),
    ('secret: "env:A"', 'secret: "env:A", tenant: "a/b"', "`tenant`"),
    ("env:A", "whsec_abc", "has a secret in `secret`"),
    ('secret: "env:A"', 'secret: ""', "needs a `secret`"),
    ('secret: "env:A"', 'secret: "env:A", actor: clerk', "names the actor `clerk`"),
    ('secret: "env:A"', 'secret: "env:A", allow_networks: ["ten"]', "needs networks"),
    ('secret: "env:A"', 'secret: "env:A", to: pigeon', "`to`"),
    ('["approval.*", "tool_call:pay"]', "[]", "needs `events`"),
)
def test_subscription_that_can_never_send_is_refused(tmp_path: Path, before: str, after: str, why: str) -> None:
    assert before in GOOD
    with pytest.raises(ConfigError, match="feed") as refused:
        load(tmp_path, GOOD.replace(before, after))
    assert why in refused.value.message


def test_every_event_type_can_be_subscribed() -> None:
    assert set(EVENT_NAMES) | {"tool_call"} == set(EVENT_TYPES)


HANDLED = 'events: ["approval.*"], to: handler, handler: "paid_tools:report", timeout: 5s'


def test_subscription_handler_is_read(tmp_path: Path) -> None:
    load(tmp_path, HANDLED)
    feed = load_manifest(tmp_path / "signoff.yaml").subscriptions["feed"]
    assert feed.handler is not None
    assert (feed.handler.__name__, feed.timeout, feed.url) == ("report", 5.0, "")


@table(
    ("before", "after", "why"),
    ("paid_tools:report", "paid_tools:plain", "is not `async def`"),
    ("paid_tools:report", "paid_tools:two", "does not take `(event)`"),
    ("paid_tools:report", "paid_tools:repport", "did you mean `report`"),
    ("paid_tools:report", "nowhere:report", "cannot import `nowhere`"),
    ("timeout: 5s", "timeout: 0", "must be more than 0"),
    ("timeout: 5s", "timeout: 2h", "at most 600 seconds"),
    ("timeout: 5s", 'url: "https://a.example"', "without a `url`"),
    ("timeout: 5s", 'secret: "env:A"', "without a `secret`"),
    ("to: handler", "to: webhook", "needs a `handler` where it says `to: handler`, and there alone"),
    (', handler: "paid_tools:report"', "", "needs a `handler` where it says `to: handler`"),
)
def test_invalid_subscription_handler_is_refused(tmp_path: Path, before: str, after: str, why: str) -> None:
    assert before in HANDLED
    with pytest.raises(ConfigError, match="feed") as refused:
        load(tmp_path, HANDLED.replace(before, after))
    assert why in refused.value.message
