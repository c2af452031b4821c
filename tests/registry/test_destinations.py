from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_tool
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_form
from signoff.registry.results.destinations import Delivery, Destination
from signoff.registry.tool_result import AnnotatedRecord, for_model, for_record, identity

RECORD = AnnotatedRecord({})
WHY = {"scope": "specialist", "justification": "only the desk sells"}


async def sink(delivery: Delivery) -> None:
    """Accept it."""


def brief(record: AnnotatedRecord) -> AnnotatedRecord:
    return record.only(())


def shorter(record: AnnotatedRecord) -> AnnotatedRecord:
    return record.only(())


async def late(record: AnnotatedRecord) -> AnnotatedRecord:
    return record


def a_destination(name: str = "cache", **fields: Any) -> Destination:
    return Destination(**{"name": name, "filter": brief, "sink": sink, **fields})


def a_catalog(*tools: Any, to: Any = (), **more: Any) -> Catalog:
    return build_catalog(tools=tools or [a_tool()], destinations=to, **more)


@pytest.mark.row("B33")
@table("name", "llm-session", "ui-streaming", "cache", "formatter:html", "formatter:sms", "audit", "peer-response")
def test_each_canonical_destination_can_be_declared(name: str) -> None:
    ours = name in ("llm-session", "audit")
    catalog = a_catalog(a_tool(peer_exposed=True), to=[a_destination(name, sink=None if ours else sink)])
    tool = catalog.tools()[0]
    assert catalog.distribution.view(tool, name) is brief
    assert [each.name for each in catalog.distribution.sinks(tool)] == ([] if ours else [name])


@pytest.mark.row("B36", "X24")
def test_destination_without_a_filter_receives_nothing() -> None:
    sold, result = a_tool("sold", filters={"cache": shorter, "ui-streaming": brief}), a_tool("told")
    to = [a_destination("cache", filter=identity), a_destination("ui-streaming", filter=None)]
    distribution = a_catalog(sold, result, to=to).distribution
    assert (distribution.view(sold, "cache"), distribution.view(result, "cache")) == (shorter, identity)
    assert (distribution.view(sold, "ui-streaming"), distribution.view(result, "ui-streaming")) == (brief, None)
    assert [each.name for each in distribution.sinks(result)] == ["cache"]
    assert (distribution.view(result, "llm-session"), distribution.view(result, "audit")) == (for_model, for_record)
    assert distribution.view(result, "formatter:html") is None


@pytest.mark.row("X24")
@table("name", "llm-session", "audit", "formatter:html", "peer-response")
def test_identity_filter_is_allowed_only_for_ui_and_cache(name: str) -> None:
    with pytest.raises(ConfigError, match="only `ui-streaming` and `cache` may have"):
        a_catalog(to=[a_destination(name, filter=identity, sink=None)])
    with pytest.raises(ConfigError, match="only `ui-streaming` and `cache` may have"):
        a_tool_checked(filters={name: identity}, peer_exposed=True)


def a_tool_checked(**fields: Any) -> None:
    a_catalog(a_tool(**fields), to=[a_destination(), a_destination("peer-response")])


def test_record_of_an_unexposed_tool_never_reaches_peers() -> None:
    plain, own, open_ = a_tool("plain"), a_tool("own", **WHY), a_tool("open", peer_exposed=True)
    distribution = a_catalog(plain, own, open_, to=[a_destination("peer-response")]).distribution
    assert [len(distribution.sinks(tool)) for tool in (plain, own, open_)] == [0, 0, 1]


@table(
    ("destination", "words"),
    (a_destination("cahce"), "destination `cahce` is none of .*; did you mean `cache`"),
    (a_destination("formatter:"), "is none of"),
    (a_destination("formatter:a b"), "is none of"),
    (a_destination(sink=None), "needs a `sink`"),
    (a_destination(sink=brief), r"needs `sink` to be `async def \(delivery\)`, but it is not"),
    (a_destination("audit"), "has a `sink`; it is Signoff's own"),
    (a_destination(filter=late), r"needs `filter` to be `def \(record\)`, but it is `async"),
    (a_destination(filter=None), "nothing would ever go there"),
    (a_destination(reads=("a.b",)), "reads `a.b`, which is no namespace"),
)
def test_invalid_destination_is_refused(destination: Destination, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        a_catalog(to=[destination])


def test_inconsistent_destinations_are_refused() -> None:
    with pytest.raises(ConfigError, match="declared twice"):
        a_catalog(to=[a_destination(), a_destination()])
    with pytest.raises(ConfigError, match="`book_flight` has a filter for `cache`, which is not declared"):
        a_catalog(a_tool(filters={"cache": brief}))
    with pytest.raises(ConfigError, match="is not `peer_exposed`; drop one"):
        a_tool_checked(filters={"peer-response": brief})
    with pytest.raises(ConfigError, match="a destination `ui` that is none of"):
        a_tool_checked(filters={"ui": brief})
    with pytest.raises(ConfigError, match="`observer` is no function"):
        a_catalog(observer=3)


def test_destinations_are_part_of_hash_and_normal_form() -> None:
    plain, other = a_catalog(), a_catalog(to=[a_destination(reads=("acme",))])
    assert plain.hash == build_catalog(tools=[a_tool()]).hash != other.hash
    assert normal_form(plain)["destinations"] == {}
    assert normal_form(other)["destinations"] == {
        "cache": {
            "name": "cache",
            "filter": "test_destinations:brief",
            "sink": "test_destinations:sink",
            "reads": ["acme"],
        }
    }
    assert a_catalog(a_tool(filters={"audit": brief})).hash != plain.hash


MANIFEST = """\
version: 1
path: ['FOLDER']
destinations:
  cache: {filter: identity, sink: distributed:keep, reads: [acme]}
  formatter:html: {sink: distributed:keep}
  audit: {filter: distributed:brief}
observer: distributed:missed
tools:
  look:
    handler: distributed:look
    scope: generalist
    filters: {formatter:html: distributed:brief}
"""
CODE = '''
async def look(city: str) -> str:
    """Look."""
    return city

def brief(record):
    return record.only(())

async def keep(delivery):
    pass

def missed(told):
    pass
'''


def loaded(folder: Path, old: str = "", new: str = "") -> Catalog:
    (folder / "distributed.py").write_text(CODE)
    assert old in MANIFEST
    (folder / "signoff.yaml").write_text(MANIFEST.replace("FOLDER", str(folder)).replace(old, new, 1 if old else 0))
    return load_manifest(folder / "signoff.yaml")


def test_manifest_declares_destinations_filters_and_observer(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    tool, distribution = found.tools()[0], found.distribution
    assert list(distribution.destinations) == ["cache", "formatter:html", "audit"]
    assert distribution.destinations["cache"].reads == ("acme",)
    assert distribution.view(tool, "cache") is identity
    assert [each.name for each in distribution.sinks(tool)] == ["cache", "formatter:html"]
    views = [distribution.view(tool, name) for name in ("formatter:html", "audit")]
    assert [view(RECORD) for view in views if view is not None] == [RECORD, RECORD]
    assert distribution.observer is not None


@table(
    ("old", "new", "line", "words"),
    ("distributed:keep, reads", "distributed:kep, reads", 4, "`sink` of destination `cache`: module"),
    ("filter: identity", "filter: all", 4, "`filter` of destination `cache`: `all` is neither"),
    ("{formatter:html: d", "{formatter:htm: d", 12, "which is not declared"),
    ("html: distributed:brief", "html: distributed:brif", 12, "`filters.formatter:html` of tool `look`: module"),
    ("observer: distributed:missed", "observer: distributed:mised", 7, "`observer`: module"),
    ("  audit: {filter", "  audit: {filtre", 6, "unknown key `filtre` of destination `audit`"),
    ("  audit: {", "  audti: {", 6, "destination `audti` is none of"),
)
def test_error_in_a_manifest_destination_has_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        loaded(tmp_path, old, new)
    assert refused.value.context["line"] == line
