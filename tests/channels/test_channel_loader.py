import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tables import table

from signoff.channels.base import Channel
from signoff.channels.channel_loader import ChannelProblem, channel_class, known_kinds, open_channels
from signoff.channels.webhook import Webhook
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider
from signoff.plugins.loader import Plugins
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.store import Store
from signoff.testing.recording_channel import RecordingChannel

RECORDING = "signoff.testing.recording_channel"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = {"url": "https://desk.example.com/hook", "secret": "env:HOOK"}


async def opened(
    store: Store, *declared: DeclaredChannel, **environment: str
) -> tuple[dict[str, Channel], list[ChannelProblem]]:
    url = "https://signoff.example.com"
    return await open_channels(
        declared,
        store,
        public_url=url,
        clock=lambda: datetime.now(UTC),
        secrets=SecretProvider(environment=environment),
        plugins=Plugins(),
    )


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    package = folder / "desks"
    package.mkdir(exist_ok=True)
    (package / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


async def test_channel_gets_its_name_options_and_a_separate_key(store: Store) -> None:
    made, problems = await opened(
        store,
        DeclaredChannel("desk", "webhook", HOOK),
        DeclaredChannel("book", RECORDING),
        DeclaredChannel("other", RECORDING),
        HOOK=SECRET,
    )
    assert problems == []
    assert [type(channel) for channel in made.values()] == [Webhook, RecordingChannel, RecordingChannel]
    context = made["desk"].context
    assert (context.name, context.options["secret"]) == ("desk", SECRET)
    assert context.public_url == "https://signoff.example.com"
    assert len({channel.context.secret for channel in made.values()}) == 3
    again, _ = await opened(store, DeclaredChannel("book", RECORDING))
    assert again["book"].context.secret == made["book"].context.secret


async def test_incomplete_channel_leaves_the_others_running(store: Store) -> None:
    made, problems = await opened(store, DeclaredChannel("desk", "webhook", HOOK), DeclaredChannel("book", RECORDING))
    assert list(made) == ["book"]
    assert problems == [ChannelProblem("desk", "it needs the environment variable `HOOK`, which is not set")]


@table(
    ("options", "message"),
    ({"secret": "env:HOOK"}, "it lacks the option `url`"),
    (HOOK | {"urll": "x"}, "there is no option `urll`; did you mean `url`?"),
    (HOOK | {"url": "ftp://x"}, "option `url`: a web address looks like https://desk.example.com/approvals"),
    (HOOK | {"timeout_seconds": 0}, "option `timeout_seconds`: Input should be greater than 0"),
    (HOOK | {"allow_networks": ["10.0.0.0/33"]}, "option `allow_networks`: '10.0.0.0/33' does not appear to be"),
    (HOOK | {"secret": "env:SHORT"}, "a signing secret is `whsec_` and 24 to 64 bytes in base64"),
)
async def test_invalid_options_are_named(store: Store, options: dict[str, Any], message: str) -> None:
    made, problems = await opened(store, DeclaredChannel("desk", "webhook", options), HOOK=SECRET, SHORT="hunter2")
    assert made == {}
    assert problems[0].what.startswith(message)
    assert SECRET not in problems[0].what
    assert "hunter2" not in problems[0].what


def test_unknown_kind_is_reported_with_similar_kinds() -> None:
    with pytest.raises(ConfigError, match=r"no kind of channel `webhok`; did you mean `webhook`\?; a channel of your"):
        channel_class("webhok", Plugins())
    with pytest.raises(ConfigError, match=r"no kind of channel `zzz`; known: .*`webhook`"):
        channel_class("zzz", Plugins())
    with pytest.raises(ConfigError, match=r"no kind of channel `nowhere.at_all`"):
        channel_class("nowhere.at_all", Plugins())


@table("kind", "base", "wording", "texts")
def test_module_without_a_channel_is_no_kind(kind: str) -> None:
    with pytest.raises(ConfigError, match="no kind of channel"):
        channel_class(kind, Plugins())
    assert kind not in known_kinds(Plugins())


def test_every_known_kind_can_be_loaded() -> None:
    for kind in known_kinds(Plugins()):
        made = channel_class(kind, Plugins())
        assert made.kind == kind
        assert made.identity or made.addresses is not Channel.addresses
    assert "webhook" in known_kinds(Plugins())


def test_module_in_the_project_is_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, monkeypatch, "good", "from signoff.testing.recording_channel import RecordingChannel as CHANNEL")
    module(tmp_path, monkeypatch, "bare", "")
    module(tmp_path, monkeypatch, "odd", "CHANNEL = 3")
    module(tmp_path, monkeypatch, "broken", "raise RuntimeError('no\\nluck')")
    module(tmp_path, monkeypatch, "lacking", "import nowhere_to_be_found")
    assert channel_class("desks.good", Plugins()) is RecordingChannel
    for name, message in {
        "bare": "module `desks.bare` has no `CHANNEL` that is a class of channel",
        "odd": "module `desks.odd` has no `CHANNEL` that is a class of channel",
        "broken": "its module cannot be imported: RuntimeError: no$",
        "lacking": "it needs the Python module `nowhere_to_be_found`, which is not installed",
    }.items():
        with pytest.raises(ConfigError, match=message):
            channel_class(f"desks.{name}", Plugins())


async def test_failing_channel_constructor_is_reported_without_its_message(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        from signoff.testing.recording_channel import RecordingChannel
        class CHANNEL(RecordingChannel):
            def __init__(self, context):
                raise RuntimeError("the password is hunter2")
        """
    module(tmp_path, monkeypatch, "failing", text)
    made, problems = await opened(store, DeclaredChannel("a", "desks.failing"), DeclaredChannel("b", RECORDING))
    assert list(made) == ["b"]
    assert problems == [ChannelProblem("a", "it cannot be made: RuntimeError")]
