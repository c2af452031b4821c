"""The language of the package: one word for one thing, nouns for classes and modules, none without an explanation."""

import ast
import dataclasses
import functools
import inspect
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from documents import parsed
from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/signoff"
FACE = {"__init__.py", "py.typed"}

MODULES_IN_A_FOLDER = 25

ORDINARY_NOUNS = {"string", "docstring", "routing", "pricing", "token", "screen"}
"""Words that end like a gerund or a participle and are neither."""

PUBLIC = ("signoff", "signoff.channels", "signoff.people", "signoff.testing", "signoff.tools")
"""The modules of the public face."""
IMPERATIVE = {("cli/local/tool_metrics.py", "metrics")}
"""Commands that no decorator names: what is shown as help says what to do, as help does."""
NOT_VERBS = {"Its", "Sentences", "This", "Words"}
"""Words that end like a verb in the third person and are none."""

EXPLAINED_IN = ("docs/concepts.md", "docs/architecture.md")

UNCLEAR_NAMES = {
    "told": "what is told is a message, an entry, a receipt",
    "said": "what was said is an answer, a decision, a body",
    "heard": "what was heard is an action, an input, an answer",
    "asked_of": "who is asked is an approver",
    "ruling": "the gates' word on a call is a gate decision, that of the rules a verdict",
    "gated": "what the gates answer is a reply",
    "notice": "what a channel sends is a card",
    "witness": "who reports an attempt is its reporter, what checks signatures is a policy",
}
"""Names of variables and parameters that say nothing of what they hold, and what does."""
METAPHORS = {
    "doors?": "a route, an Update, a Signal, a way in",
    "lends?|lent|lending": "gives",
    "couriers?|carriers?": "a dispatcher, a sender",
    "faces?": "the public names, or the methods, themselves",
    "glance|sparing|furnish(?:es|ed)?|mouth": "say what is done",
    "desks?": "a book of approvals, a client, a service; the actor of examples is `desk` in backticks",
}
"""Words of comments and docstrings that stand for something else, and what they stand for."""
_ANY_METAPHOR = re.compile(rf"\b(?:{'|'.join(METAPHORS)})\b", re.IGNORECASE)
LITERAL = {
    ("channels/mail/footer_phrases.py", "desk"),
    ("channels/mail/sns.py", "notice"),
    ("gateway/pages/sign_in.py", "notice"),
}
"""Where some of these words mean what they say: in addresses, in what Amazon calls so, and on a page."""
PARTICIPLE = re.compile(
    "told|said|heard|given|taken|brought|sent|shown|known|found|kept|held|made|meant|begun|left|seen|drawn|written"
    "|[a-z]+ed"
)
VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
"""Words that end like a past participle and are none."""
PREDICATES = {"proved", "opened", "happened"}
"""Methods that say that it is so, `visitor.opened(token)`; and the answer that a call `happened`, beside `approve`."""


def _roots() -> Iterator[Path]:
    """Every folder and module that `src/signoff` leads to."""
    for link in sorted(PACKAGE.iterdir()):
        if link.name not in FACE and link.name != "__pycache__":
            yield ROOT / link.name


def _modules() -> list[Path]:
    found: list[Path] = []
    for root in _roots():
        found += [root] if root.is_file() else sorted(root.rglob("*.py"))
    return found


def _public_classes() -> dict[str, list[str]]:
    """The modules that define each public class at their top level."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in _modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return dict(found)


def _head(name: str) -> str:
    """The noun that a class name ends with: `Queue` of `DeliveryQueue`."""
    return re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", name)[-1]


def _explained() -> tuple[set[str], set[str]]:
    """The class names that a document names in backticks, and the nouns that the table of nouns explains."""
    named: set[str] = set()
    for document in EXPLAINED_IN:
        for span in re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()):
            named |= set(re.findall(r"\b[A-Z]\w+", span))
    architecture = (ROOT / "docs/architecture.md").read_text()
    table = architecture.partition("## Nouns in names")[2].partition("\n## ")[0]
    nouns = {noun for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for noun in re.findall(r"`(\w+)`", row)}
    return named, nouns


def _acts_like_a_verb(stem: str) -> bool:
    """Whether the last word of a module's name is a gerund or a past participle, as far as its ending tells."""
    last = stem.rpartition("_")[2]
    return last not in ORDINARY_NOUNS and bool(re.search(r"(ing|ed|own|ept|ought|eard|een|idden|oken|osen)$", last))


def test_no_two_public_classes_have_one_name() -> None:
    """One word means one thing: a public class name occurs once in the package."""
    assert {name: where for name, where in _public_classes().items() if len(where) > 1} == {}


def test_modules_are_named_by_nouns() -> None:
    """A module holds the noun that it is named by; `approvals/binding` is one that looks like a gerund."""
    verbs = {
        str(path.relative_to(ROOT))
        for path in _modules()
        if _acts_like_a_verb(path.stem) and "versions" not in path.parts
    }
    assert verbs - {"approvals/binding.py"} == set()


@pytest.mark.parametrize(
    ("stem", "verb"), [("hearing", True), ("tickets_seen", True), ("routing", False), ("heartbeat", False)]
)
def test_a_verb_as_a_module_s_name_is_noticed(stem: str, verb: bool) -> None:
    """The test of modules' names notices gerunds and participles, and lets ordinary nouns be."""
    assert _acts_like_a_verb(stem) is verb


def test_every_public_class_is_explained() -> None:
    """A reader finds each class's noun, or the class itself, in the concepts or on the map."""
    named, nouns = _explained()
    assert nouns, "the table of nouns is gone"
    assert sorted(name for name in _public_classes() if name not in named and _head(name) not in nouns) == []


def test_every_explained_noun_is_used() -> None:
    """The table of nouns explains no noun with which no class name ends."""
    assert _explained()[1] - {_head(name) for name in _public_classes()} == set()


def test_no_folder_holds_more_modules_than_one_can_overlook() -> None:
    """No folder has more than 25 modules."""
    held: defaultdict[str, int] = defaultdict(int)
    for path in _modules():
        if path.name != "__init__.py" and "versions" not in path.parts:
            held[str(path.parent.relative_to(ROOT))] += 1
    held.pop(".", None)
    assert {name: count for name, count in held.items() if count > MODULES_IN_A_FOLDER} == {}


def test_every_folder_has_its_layer() -> None:
    """Each folder and root module stands in the import contract, once; `testing` alone may import everything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = next(contract for contract in contracts if contract["type"] == "layers")
    layers = [name.strip() for layer in layered["layers"] for name in re.split("[|:]", layer)]
    assert len(layers) == len(set(layers))
    assert layered["exhaustive"] is True
    assert set(layers) == {root.stem for root in _roots()} - set(layered["exhaustive_ignores"])


def _is_shown(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a docstring is read by users: of a command, of a route, or of a test in the suite of channels."""
    found = [ast.unparse(each) for each in node.decorator_list]
    shown = re.compile(r"\w+\.(command|callback|get|post|put|patch|delete|api_route)\(")
    return node.name.startswith("test_") or any(shown.match(each) for each in found)


def _riddle(docstring: str, *, is_property: bool) -> bool:
    """Whether a docstring's first sentence begins with no verb (of a property: with a relative clause)."""
    first = " ".join(docstring.partition("\n\n")[0].split())
    if is_property:
        return re.match(r"(What|Who|Whom|Whose|Where|When)(ever|so)?\b", first) is not None
    # "Returns what", "Yields whom": the noun that would say it is missing.
    if re.match(r"(Returns|Yields) (what|who|whom)(ever)?\b", first):
        return True
    verb = re.match(r"[A-Z][a-z]+s\b", first)
    return not (verb and verb[0] not in NOT_VERBS) and not first.startswith("See `")


@pytest.mark.parametrize(
    ("docstring", "is_property", "riddle"),
    [
        ("Returns the receipt of a request.", False, False),
        ("See `Interceptor`.", False, False),
        ("What became of a request.", False, True),
        ("Returns what became of a request.", False, True),
        ("Whoever may answer.", False, True),
        ("A card that nobody was sent.", False, True),
        ("Words for an actor.", False, True),
        ("The present reasons.", True, False),
        ("What its parts say.", True, True),
    ],
)
def test_a_riddle_is_noticed(docstring: str, is_property: bool, riddle: bool) -> None:
    """A first sentence without a verb or with a relative clause for a noun is noticed, and a plain one is not."""
    assert _riddle(docstring, is_property=is_property) is riddle


def test_a_docstring_says_first_what_the_thing_does() -> None:
    """Each function's docstring begins with a verb in the third person, and no property's with a relative clause."""
    riddles: list[str] = []
    for path in _modules():
        name = str(path.relative_to(ROOT))
        if "versions" in path.parts:
            continue
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_shown(node):
                continue
            is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
            docstring = ast.get_docstring(node)
            if docstring and (name, node.name) not in IMPERATIVE and _riddle(docstring, is_property=is_property):
                riddles.append(f"{name}:{node.lineno} {node.name}: {docstring.splitlines()[0]}")
    assert riddles == []


def _public_models() -> Iterator[type]:
    """Every record of the public face, and those of ours that it is made from."""
    found: set[type] = set()
    for module in map(import_module, PUBLIC):
        named = (getattr(module, name) for name in module.__all__)
        found |= {base for each in named if isinstance(each, type) for base in each.__mro__}
    for each in found:
        is_record = issubclass(each, BaseModel) or dataclasses.is_dataclass(each) or hasattr(each, "_fields")
        if is_record and each.__module__.startswith("signoff."):
            yield each


@functools.cache
def _fields(tree: ast.Module, name: str) -> dict[str, bool]:
    """The fields that a class declares, and whether each has a `description` or a string below."""
    (body,) = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    found: dict[str, bool] = {}
    for field, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        has_string = (
            isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
        )
        described = any(isinstance(each, ast.keyword) and each.arg == "description" for each in ast.walk(field))
        found[field.target.id] = has_string or described or field.target.id.startswith("_")
    return found


def test_an_undocumented_field_is_noticed() -> None:
    """A string below or a description is a documentation of a field, and a comment or another's string is none."""
    source = (
        'class A:\n    a: int\n    """One."""\n    b: int  # two\n    c: int = Field(description="three")\n    _d: int'
    )
    assert _fields(ast.parse(source), "A") == {"a": True, "b": False, "c": True, "_d": True}


def test_every_field_of_a_public_model_is_documented() -> None:
    """Fields of public records are documented one by one, not in a paragraph that names some of them."""
    models = sorted(_public_models(), key=lambda each: each.__qualname__)
    assert {"ApprovalRequest", "Question", "Decision", "Tool"} <= {each.__name__ for each in models}
    undocumented: list[str] = []
    for model in models:
        # A field that a class declares again may be documented where it was declared first.
        bases = [each for each in reversed(model.__mro__) if each.__module__.startswith("signoff.")]
        declared = [_fields(parsed(Path(str(inspect.getsourcefile(each)))), each.__name__) for each in bases]
        documented = {name for fields in declared for name, is_documented in fields.items() if is_documented}
        undocumented += [f"{model.__name__}.{name}" for name in sorted(declared[-1].keys() - documented)]
    assert undocumented == []


def _own_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The variables and parameters of functions, each with its line. Fields of classes are not among them."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                yield node.lineno, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                yield node.lineno, node.name


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings, without what stands in them between backticks."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield token.start[0], re.sub(r"`[^`]*`", "", token.string)


def _unclear(source: str, tree: ast.Module) -> list[tuple[int, str, str]]:
    """Names and words that are not to be found in `source`: line, word, and what to write in its place."""
    names = {(line, name, UNCLEAR_NAMES[name]) for line, name in _own_names(tree) if name in UNCLEAR_NAMES}
    # Most modules hold none of these words anywhere: they need not be cut into tokens to say so.
    words = {
        (line, found[0].lower(), better)
        for line, text in (_prose(source) if _ANY_METAPHOR.search(source) else ())
        for word, better in METAPHORS.items()
        for found in re.finditer(rf"\b(?:{word})\b", text, re.IGNORECASE)
    }
    return sorted(names | words)


def _participles(tree: ast.Module) -> list[tuple[int, str]]:
    """Functions and methods that are named by a past participle alone; properties may be."""
    return [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name.lstrip("_"))
        and node.name.lstrip("_") not in VERBS | PREDICATES
        and not any("property" in ast.unparse(each) for each in node.decorator_list)
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(told, *, said=0): ...", ["said", "told"]),
        ("def f():\n    for heard in ():\n        with a as gated: pass", ["heard", "gated"]),
        ("def f(): return [1 for told in ()], lambda ruling: 0", ["ruling", "told"]),
        ("def f():\n    match 1:\n        case witness: pass", ["witness"]),
        ("x = 1  # By the other Door.\n", ["door"]),
        ('"""Lends a mouth."""\n', ["lends", "mouth"]),
        ('class A:\n    told: str\n    """Of `desk`, indoors, on the surface."""\n', []),
        ("def f(a): return a(told='told by a door')", []),
    ],
)
def test_unclear_words_are_noticed(source: str, words: list[str]) -> None:
    """Each kind of variable, comments and docstrings; not fields, longer words, code in backticks, other strings."""
    assert [word for _, word, _ in _unclear(source, ast.parse(source))] == words


def test_a_participle_as_a_function_s_name_is_noticed() -> None:
    """A function that is a past participle, not one with more words in its name, nor a property or a predicate."""
    source = "async def _told(): ...\nclass A:\n    def refused(self): ...\n    def is_refused(self): ...\n"
    plain = "class A:\n    @property\n    def kept(self): ...\n    def feed(self): ...\n    def opened(self): ...\n"
    assert [name for _, name in _participles(ast.parse(source))] == ["_told", "refused"]
    assert _participles(ast.parse(plain)) == []


def test_names_and_comments_say_what_things_are() -> None:
    """No variable says only that something was told, no comment speaks in a figure, no function is a participle."""
    found: list[str] = []
    for path in _modules():
        name, tree = str(path.relative_to(ROOT)), parsed(path)
        if "versions" in path.parts:
            continue
        unclear = _unclear(path.read_text(), tree)
        found += [f"{name}:{line} {word}: {why}" for line, word, why in unclear if (name, word) not in LITERAL]
        found += [f"{name}:{line} {function}: name it by a verb" for line, function in _participles(tree)]
    assert found == []


def test_variables_of_tests_say_what_they_hold() -> None:
    """Nor does a variable of a test say only that something was said, heard or ruled."""
    any_of_them = re.compile(r"\b(?:said|heard|ruling)\b")
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}: {UNCLEAR_NAMES[name]}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if any_of_them.search(path.read_text())
        for line, name in _own_names(parsed(path))
        if any_of_them.fullmatch(name)
    ]
    assert found == []
