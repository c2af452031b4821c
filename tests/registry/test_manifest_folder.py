import dataclasses
from pathlib import Path

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_text

MAIN = "version: 1\npath: [code]\ndefaults: {model: 'scripted:x:y'}\n"
HANDLERS = '''
async def search(destination: str) -> str:
    """Search."""
    return destination
'''
SEARCH = "handler: folder_handlers:search\nscope: generalist\ntags: [flights]\n"
RULE = "- {name: frozen, rule: \"'x' in tool.tags\", effect: deny}\n"
FILES = {
    "signoff.yaml": MAIN,
    "tools/search.yaml": SEARCH,
    "actors/desk.yaml": "tools: [search]\n",
    "policies.yaml": RULE,
    "people.yaml": "- {id: ana, roles: [finance]}\n",
    "code/folder_handlers.py": HANDLERS,
    "tools/README.md": "Not YAML.\n",
}
WHOLE = (
    MAIN
    + "tools:\n  search: {handler: 'folder_handlers:search', scope: generalist, tags: [flights]}\n"
    + "actors:\n  desk: {tools: [search]}\npeople: people.yaml\npolicies:\n  "
    + RULE
)


def write(folder: Path, **changed: str) -> Path:
    """`__` and `_` in a name stand for `/` and `.`."""
    named = {name.replace("/", "__").replace(".", "_"): name for name in FILES}
    for name, text in {**FILES, **{named.get(key, key): text for key, text in changed.items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_manifest(folder)
    return caught.value.message.replace(f"{folder}/", "")


def load(folder: Path) -> Catalog:
    return load_manifest(folder)


@pytest.mark.row("V04")
def test_manifest_directory_equals_the_same_single_file(tmp_path: Path) -> None:
    catalog = load(write(tmp_path / "folder"))
    one = write(tmp_path / "one") / "signoff.yaml"
    one.write_text(WHOLE)
    assert normal_text(catalog) == normal_text(load_manifest(one))
    assert catalog.registry.resolve("search").site == f"{tmp_path}/folder/tools/search.yaml:1"
    assert catalog.people.find("ana").roles == ("finance",)


@pytest.mark.row("P19")
def test_agent_file_names_its_tools_and_bounds(tmp_path: Path) -> None:
    agent = "tools: [search]\nlimits: {calls: 7, cost: 0.5}\nsurfaces: {chat: {exclude: [search]}}\n"
    catalog = load(write(tmp_path, actors__desk_yaml=agent))
    actor = catalog.actor("desk")
    assert (actor.tools, actor.limits.calls, actor.limits.cost) == (("search",), 7, 0.5)
    assert actor.surfaces["chat"].exclude == ("search",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        actor.tools = ()  # type: ignore[misc]
    write(tmp_path, actors__desk_yaml="tools: []\n")
    assert catalog.actor("desk") is actor
    assert "lists the unknown tool `book`" in refusal(write(tmp_path, actors__desk_yaml="tools: [book]\n"))


def test_manifest_file_is_read_without_its_directory(tmp_path: Path) -> None:
    assert load_manifest(write(tmp_path) / "signoff.yaml").registry.size == 0


def test_sections_of_file_and_directory_are_combined(tmp_path: Path) -> None:
    more = "tools:\n  own: {handler: 'folder_handlers:search', scope: generalist}\n"
    rules = "policies:\n  - {name: first, rule: \"'y' in tool.tags\", effect: deny}\n"
    actors = "actors:\n  other: {tools: [own, search]}\n"
    catalog = load(write(tmp_path, signoff_yaml=MAIN + more + rules + actors))
    assert catalog.registry.list() == ("own", "search")
    assert list(catalog.actors) == ["other", "desk"]
    assert [rule.name for rule, _ in catalog.rules.rules] == ["first", "frozen"]


@table(
    ("changed", "words"),
    ({"tools/search.yaml": SEARCH + "tagss: []\n"}, "tools/search.yaml:4: unknown key `tagss` of tool `search`"),
    ({"tools/search.yaml": "scope: generalist\nhandler: folder_handlers:serch\n"}, "tools/search.yaml:2: `handler`"),
    ({"tools/search.yaml": SEARCH + "scope: generalist\n"}, "tools/search.yaml:4: the key `scope` is given twice"),
    ({"tools/search.yaml": SEARCH + "title: ${TITLE}\n"}, "tools/search.yaml:4: `${TITLE}`: variables are not read"),
    ({"tools/search.yaml": SEARCH + "name: find\n"}, "tools/search.yaml:4: tool `search` calls itself `find`"),
    ({"tools/search.yaml": SEARCH + "requires_approval:\n  denyIf: args.x\n"}, "tools/search.yaml:5: "),
    ({"tools/search.yaml": ""}, "tools/search.yaml:1: `handler` of tool `search` is missing"),
    ({"tools/respond.yaml": SEARCH}, "tools/respond.yaml:1: tool `respond` has a reserved name"),
    ({"tools/Search.yaml": SEARCH}, "differ by case only"),
    ({"actors/desk.yaml": "tools: [serch]\n"}, "actors/desk.yaml:1: actor `desk` lists the unknown tool `serch`"),
    ({"actors/desk.yaml": "model_settings:\n  api_key: x\n"}, "actors/desk.yaml:2: actor `desk` has a secret"),
    ({"policies.yaml": RULE + "- {name: b, rule: tool.x, effect: deny}\n"}, "policies.yaml:2: "),
    ({"policies.yaml": "frozen: {}\n"}, "policies.yaml:1: policies are a list of rules"),
    ({"people.yaml": "- {id: ana, rols: []}\n"}, "people.yaml:1: unknown key `rols` of a person"),
    (
        {"signoff.yaml": MAIN + "tools:\n  search: {handler: a}\n"},
        "tools/search.yaml:1: `search` of `tools` is declared here and in signoff.yaml:5; keep one",
    ),
    (
        {"signoff.yaml": MAIN + "actors:\n  desk: {}\n"},
        "actors/desk.yaml:1: `desk` of `actors` is declared here and in signoff.yaml:5; keep one",
    ),
    (
        {"signoff.yaml": MAIN + "policies:\n  " + RULE},
        "policies.yaml:1: the rule `frozen` is declared here and in signoff.yaml:5; keep one",
    ),
    (
        {"signoff.yaml": MAIN + "people: []\n"},
        "people.yaml:1: people are declared here and in signoff.yaml:4; keep one",
    ),
    ({"tools/pay.yml": SEARCH}, "signoff.yaml:1: `tools/pay.yml` would not be read; write `tools/<name>.yaml`"),
    ({"tools/more/pay.yaml": SEARCH}, "`tools/more/pay.yaml` would not be read"),
    ({"policies.yml": RULE}, "`policies.yml` would not be read; call it `policies.yaml`"),
    ({"signoff.yaml": "path: []\n"}, "signoff.yaml:1: `version` is missing"),
    ({"signoff.yaml": "- version\n"}, "signoff.yaml:1: a manifest is a mapping"),
    ({"signoff.yaml": MAIN + "tools: []\n"}, "signoff.yaml:4: `tools` of the manifest must be a mapping"),
)
def test_errors_are_reported_in_their_own_file(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    message = refusal(write(tmp_path, **changed))
    assert words in message
    assert not message.endswith(".")


def test_directory_without_a_main_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "signoff.yaml: there is no such file"


def test_people_file_of_a_directory_may_also_be_named(tmp_path: Path) -> None:
    catalog = load(write(tmp_path, signoff_yaml=MAIN + "people: people.yaml\n"))
    assert catalog.people.find("ana").id == "ana"
