import sys
import tomllib
from pathlib import Path

import pytest
from plugin_code import Install, code, routes
from tables import table

from signoff.channels.channel_loader import KINDS, channel_class, known_kinds
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import PLUGIN_NAMES
from signoff.plugins.loader import GROUP, OURS, OWN_CHANNELS, Plugins
from signoff.settings import load_settings

ROOT = Path(__file__).parents[2]


def problems(*names: str) -> list[str]:
    return [each.problem for each in Plugins(names).all() if each.problem]


def test_projects_entry_points_match_loader_and_settings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"][GROUP] == OURS
    assert tuple(OURS) == PLUGIN_NAMES


def test_every_plugin_package_is_covered_by_import_contracts() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    about = [each for each in linter["contracts"] if "plugin" in each["name"]]
    folders = sorted(f"signoff.plugins.{path.parent.name}" for path in ROOT.glob("src/signoff/plugins/*/__init__.py"))
    assert len(folders) >= 3
    assert [each.get("protected_modules") or each["source_modules"] for each in about] == [folders, folders]
    assert folders == [f"signoff.plugins.{name}" for name in OURS]


@table("name", *OURS)
def test_own_plugin_offers_a_channel_of_its_name_or_routes(name: str) -> None:
    (plugin,) = Plugins([name]).all()
    assert plugin.problem == ""
    assert set(plugin.channels) == ({name} & OWN_CHANNELS)
    assert bool(plugin.routers) == (name not in OWN_CHANNELS)


def test_default_settings_load_all_own_plugins(clean_env: pytest.MonkeyPatch) -> None:
    assert load_settings().plugins == PLUGIN_NAMES
    assert set(known_kinds(Plugins())) == {*KINDS, "apprise", "teams", "telegram", "twilio"}


def test_plugin_of_another_distribution_adds_its_channel(install: Install) -> None:
    plugins = Plugins([install("acme-beeper")])
    assert channel_class("beeper", plugins).__module__ == "acme_beeper_code"
    assert "beeper" in known_kinds(plugins)
    assert plugins.all()[0].problem == ""


def test_unnamed_plugin_is_never_imported(install: Install, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    install("acme-beeper", f"open({str(mark)!r}, 'w')")
    with pytest.raises(ConfigError, match="add the plugin `acme-beeper:beeper`, which is installed, to SIGNOFF"):
        channel_class("beeper", Plugins())
    assert not mark.exists()


@table("name", *OURS)
def test_unnamed_own_plugin_is_never_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, OURS[name].partition(":")[0], None)
    plugins = Plugins([each for each in OURS if each != name])
    assert [each.problem for each in (*plugins.all(), *plugins.with_routes()) if each.problem] == []
    assert name not in known_kinds(plugins)
    with pytest.raises(ConfigError, match="there is no kind of channel `fax`"):
        channel_class("fax", plugins)


def test_own_channel_of_a_failing_plugin_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, OURS["telegram"].partition(":")[0], None)
    failed = "kind `telegram`: the distribution `signoff` has a plugin `telegram` that fails: ModuleNotFoundError"
    with pytest.raises(ConfigError, match=failed):
        channel_class("telegram", Plugins())
    assert channel_class("apprise", Plugins()).kind == "apprise"


def test_entry_point_of_an_unnamed_distribution_is_ignored(install: Install, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    install("evil-beeper", f"open({str(mark)!r}, 'w')")
    plugins = Plugins([install("acme-beeper")])
    assert channel_class("beeper", plugins).__module__ == "acme_beeper_code"
    assert not mark.exists()


def test_failing_plugins_are_reported_by_distribution_and_others_load(install: Install) -> None:
    broken = install("broken-beeper", "raise RuntimeError('no\\nluck')")
    ending = install("ending-beeper", "raise SystemExit(3)")
    good = install("acme-beeper")
    plugins = Plugins([broken, ending, "gone-beeper:beeper", good, "telegram"])
    assert {each.name: each.problem for each in plugins.all() if each.problem} == {
        broken: "the distribution `broken-beeper` has a plugin `beeper` that fails: RuntimeError: no",
        ending: "the distribution `ending-beeper` has a plugin `beeper` that fails: SystemExit: 3",
        "gone-beeper:beeper": "the distribution `gone-beeper` is not installed",
    }
    assert plugins.kinds == ("beeper", "telegram")


def test_plugin_declared_twice_by_its_distribution_is_not_loaded(install: Install) -> None:
    name = install("acme-beeper", lines="[more]\nbeeper = acme_beeper_code:Made\n")
    assert problems(name) == []
    twice = install("twin-beeper", lines="beeper = twin_beeper_code:Other\n")
    assert problems(twice) == ["the distribution `twin-beeper` has two plugins `beeper`"]


def test_misspelt_entry_point_suggests_the_nearest(install: Install) -> None:
    install("acme-beeper")
    expected = "the distribution `acme-beeper` has no plugin `beper`; did you mean `beeper`?"
    assert problems("acme-beeper:beper") == [expected]


@pytest.mark.parametrize("kind", ["email", "telegram", "apprise", "mcp", "inbox", "api", "link"])
def test_plugin_cannot_offer_an_existing_channel(install: Install, kind: str) -> None:
    name = install("acme-beeper", code(kind=kind))
    expected = f"the distribution `acme-beeper` offers the channel `{kind}`, which exists already"
    assert problems(name) == [expected]
    assert problems("telegram", name) == [expected]


def test_first_of_two_plugins_with_one_channel_provides_it(install: Install) -> None:
    first, second = install("acme-beeper"), install("other-beeper")
    assert problems(first, second) == [
        "the distribution `other-beeper` offers the channel `beeper`, which exists already"
    ]
    assert channel_class("beeper", Plugins([second, first])).__module__ == "other_beeper_code"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (code(name="other"), "has a plugin `beeper` whose `name` is `other`"),
        (code(kind="Bee.per"), "offers the channel `Bee.per`: use lower case letters, digits and `_`"),
        (code().replace("return {'beeper'", "return {'bell'"), "offers the channel `bell` without a channel class of"),
        (code().replace(": Beeper}", ": str}"), "offers the channel `beeper` without a channel class of that `kind`"),
        (
            code().replace("(RecordingChannel)", ""),
            "offers the channel `beeper` without a channel class of that `kind`",
        ),
        (code().replace("return {", "return 3 #"), "has a plugin `beeper` that fails: TypeError"),
        ("Made = 3", "has a plugin `beeper` that fails: TypeError"),
        ("", "has a plugin `beeper` that fails: AttributeError"),
    ],
)
def test_malformed_plugin_is_not_loaded(install: Install, text: str, message: str) -> None:
    (problem,) = problems(install("acme-beeper", text))
    assert problem.startswith(f"the distribution `acme-beeper` {message}")


@pytest.mark.parametrize("prefix", ["/v1/turns", "/v1/hooks", "/plugins", "/plugins/beeper/", "/plugins/other", ""])
def test_plugin_cannot_offer_routes_outside_its_prefix(install: Install, prefix: str) -> None:
    name = install("acme-beeper", routes(prefix=prefix))
    shown = f"`{prefix}`" if prefix else "``"
    expected = f"the distribution `acme-beeper` offers routes at {shown}: put them below `/plugins/beeper`"
    assert problems(name) == [expected]


def test_first_of_two_plugins_with_one_prefix_provides_it(install: Install) -> None:
    first, second = install("acme-beeper", routes()), install("other-beeper", routes())
    assert problems(first, second) == [
        "the distribution `other-beeper` offers routes at `/plugins/beeper`, which exist already"
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return [router]", "return [ask]", "offers a function as router: make it with `PluginRouter`"),
        ("return [router]", "return router", "has a plugin `beeper` that fails: TypeError"),
        ('"/calls"', '"calls"', "offers the route `/plugins/beepercalls`, which is not below `/plugins/beeper`"),
        ('caller="anyone"', 'who="anyone"', "has a plugin `beeper` that fails: TypeError"),
    ],
)
def test_plugin_with_malformed_routes_is_not_loaded(install: Install, old: str, new: str, message: str) -> None:
    (problem,) = problems(install("acme-beeper", routes().replace(old, new, 1)))
    assert problem.startswith(f"the distribution `acme-beeper` {message}")


def test_channel_of_an_unnamed_own_plugin_names_the_setting() -> None:
    with pytest.raises(ConfigError, match="kind `telegram`: add the plugin `telegram` to SIGNOFF_PLUGINS"):
        channel_class("telegram", Plugins(["apprise"]))


def test_unknown_channel_names_the_failing_plugin(install: Install) -> None:
    name = install("acme-beeper", "raise RuntimeError('no')")
    with pytest.raises(ConfigError, match="the plugin `acme-beeper:beeper` is not loaded: the distribution `ac"):
        channel_class("beep", Plugins([name]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('["telegrm"]', "there is no plugin `telegrm`; did you mean `telegram`?; another distribution's is"),
        ('["signoff:telegram"]', "there is no plugin `signoff:telegram`"),
        ('["acme beeper:x"]', "there is no plugin `acme beeper:x`"),
        ('["telegram", "telegram"]', "the plugin `telegram` is named twice"),
    ],
)
def test_invalid_names_in_the_setting_are_refused(clean_env: pytest.MonkeyPatch, value: str, message: str) -> None:
    clean_env.setenv("SIGNOFF_PLUGINS", value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert message in caught.value.message


def test_setting_may_name_no_plugin(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_PLUGINS", "[]")
    assert known_kinds(Plugins(load_settings().plugins)) == tuple(sorted(KINDS))
