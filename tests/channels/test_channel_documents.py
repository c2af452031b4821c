import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

from documents import names, tables
from pydantic import BaseModel
from tables import table
from test_webhook import NOW, SECRET, Line, notice, webhook

from signoff.channels.channel_loader import channel_class, known_kinds
from signoff.channels.envelopes import ChannelReply, ClosedCard, InboundRequest, SentCard
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.person import Person
from signoff.plugins.loader import Plugins
from signoff.store.delivery_queue import DeliveryState


def options_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = next(filter(None, map(_model, _parts(field.annotation))), None)
        if inner is None:
            yield before + name
        else:
            yield from options_of(inner, f"{before}{name}.")


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _model(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


@table("kind", *known_kinds(Plugins()))
def test_every_option_of_every_kind_is_documented(kind: str) -> None:
    page = "docs/email.md" if kind == "email" else "docs/channels.md"
    rows = [row for row in tables(page, f"Kind {kind}") if len(row) == 3]
    listed = [name for row in rows for name in names(row[0])]
    assert sorted(listed) == sorted(options_of(channel_class(kind, Plugins()).options))


def test_every_card_state_is_explained() -> None:
    rows = tables("docs/channels.md", "Who is told, and when")
    assert sorted(name for row in rows for name in names(row[0])) == sorted(get_args(DeliveryState))


async def test_every_field_of_webhook_messages_is_documented() -> None:
    line = Line()
    channel = webhook(line)
    await channel.deliver(notice(), None)
    await channel.deliver(notice("digest"), None)
    closed = ClosedCard(request=notice().request, person=Person(id="bo"), token="t", link="https://x")
    await channel.close(SentCard(), closed)
    await channel.answer({"to": "U-bo", "in_reply_to": "m1"}, ChannelReply(text="no"))
    listed = {name: names(row[1]) for row in tables("docs/channels.md", "Kind webhook") for name in names(row[0])}
    sent = {message["type"]: set(message["data"]) for _, _, message in line.posts}
    assert sent["approval.asked"] - {"more"} == set(listed["approval.asked"])
    assert sent["approval.closed"] == set(listed["approval.closed"])
    assert sent["answer.receipt"] | {"webhook-id"} == set(listed["answer.receipt"])
    assert set(sent) <= set(listed)
    for name, data in {"decision": {"verdict": "denied", "reason": "x"}, "message": {"text": "x"}}.items():
        body = json.dumps({"type": name, "data": {"identity": "U-bo", "token": "t"} | data}).encode()
        raw = signed(body)
        assert {*data, "identity", "token", "in_reply_to"} <= set(listed[name])
        assert channel.receive(raw).actions[0].token == "t"
    assert set(listed["status"]) >= {"id", "state", "code", "message", "delivered", "read", "failed"}


def signed(body: bytes) -> InboundRequest:
    headers = signed_headers([read_secret(SECRET)], "m1", NOW, body)
    return InboundRequest(body, {**headers, "content-type": "application/json"})
