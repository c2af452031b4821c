"""Traces one approval on WhatsApp, from the webhook's request to the run of the tool. Prints a table, or JSON.

Run it as `PYTHONPATH=tests python tools/measure/answer.py`. Gateway, worker and the fake of WhatsApp run in this
process, over a Temporal server and a store of their own. The trace covers all threads and the tasks in the background.
"""

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx2
from gateway_rig import BASE, PEOPLE, gateway_rig, rig_catalog
from polling import pauses
from pydantic import BaseModel
from turn_fixtures import Ledger

from signoff.channels.channel_loader import open_channels
from signoff.contracts.clock import system_clock
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import development_directory
from signoff.plugins.loader import Plugins
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.fake_whatsapp import FakeWhatsApp, fake_whatsapp

PHONE: Final = FakeWhatsApp.identities[0]
NAMED: Final = frozenset(
    {"approval_id", "approval", "delivery_id", "verdict", "decision", "decisions", "question_hash", "ticket"}
)
"""Fields that hold an answer or identify its request."""
SECONDS: Final = 30.0


class Trace:
    """The calls of Signoff's functions while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.calls = 0
        self.functions: set[tuple[str, str]] = set()
        self.edges: set[tuple[str, str, str, str]] = set()
        self.shapes: dict[int, Any] = {}

    def start(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def figures(self) -> dict[str, Any]:
        modules = {module for module, _ in self.functions}
        crossing = [edge for edge in self.edges if folder(edge[0]) != folder(edge[2])]
        types = sorted({type(shape).__name__ for shape in self.shapes.values()})
        return {
            "calls": self.calls,
            "functions": len(self.functions),
            "modules": len(modules),
            "pairs of functions that cross folders": len(crossing),
            "shapes": len({repr(shape) for shape in self.shapes.values()}),
            "types": len(types),
            "names of types": types,
        }

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if not self.on or event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        if not module.startswith("signoff.") or module.startswith("signoff.testing") or name.endswith(">"):
            return
        self.calls += 1
        self.functions.add((module, name))
        above = frame.f_back
        while above is not None and not above.f_globals.get("__name__", "").startswith("signoff."):
            above = above.f_back
        if above is not None:
            self.edges.add((above.f_globals["__name__"], above.f_code.co_qualname, module, name))
        for given in frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]:
            value = frame.f_locals.get(given)
            if given != "self" and fields_of(value) & NAMED:
                self.shapes[id(value)] = value


def folder(module: str) -> str:
    """Return `gateway.auth` of `signoff.gateway.auth.caller`."""
    return ".".join(module.split(".")[1:-1])


def fields_of(value: Any) -> frozenset[str]:
    if isinstance(value, BaseModel):
        return frozenset(type(value).model_fields)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return frozenset(field.name for field in dataclasses.fields(value))
    # Some classes of libraries have another attribute of this name, and an error would stop the trace of a thread.
    names = getattr(type(value), "_fields", ()) if isinstance(value, tuple) else ()
    return frozenset(names)


def catalog_of(ledger: Ledger) -> Catalog:
    """WhatsApp reaches the approver of the desk."""
    people = [
        replace(person, identities={"whatsapp": (PHONE,)}) if person.id == "approver" else person for person in PEOPLE
    ]
    channels = Channels({"phone": DeclaredChannel("phone", "whatsapp")}, RoutingRules(default=("phone",)))
    return dataclasses.replace(rig_catalog(ledger), people=development_directory(people), channels=channels)


async def trace_answer(place: Path) -> Trace:
    trace = Trace()
    trace.start()
    server = ServerOptions(place / "temporal.db", port=free_port(), ui_port=None)
    async with (
        run_server(server) as handle,
        fake_whatsapp() as phone,
        open_store(f"sqlite:///{place}/signoff.db") as store,
    ):
        client = await handle.connect()
        queue = f"answer-{uuid.uuid4().hex[:8]}"
        async with gateway_rig(client, store, queue, catalog_of_ledger=catalog_of) as rig:
            phone.clock = system_clock
            phone.write(PHONE, "hello")
            opened, problems = await open_channels(
                [DeclaredChannel("phone", "whatsapp", phone.options)],
                store,
                public_url=BASE,
                clock=system_clock,
                secrets=SecretProvider(environment=phone.environment),
                plugins=Plugins(),
            )
            assert problems == [], problems
            async with run_channels(rig.deps, opened, RoutingRules(default=("phone",))) as inbound:
                transport = httpx2.ASGITransport(app=build_app(rig.deps, inbound))
                async with httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=60) as http:
                    await rig.asked("pay")
                    async with asyncio.timeout(SECONDS):
                        for seconds in pauses():
                            if phone.cards():
                                break
                            await asyncio.sleep(seconds)
                    pressed = phone.press(phone.cards()[0], PHONE, "approved")
                    trace.on = True
                    answer = await http.post("/channels/phone", content=pressed.body, headers=dict(pressed.headers))
                    assert answer.status_code == 200, answer.text
                    async with asyncio.timeout(SECONDS):
                        for seconds in pauses():
                            if rig.ledger.rows:
                                break
                            await asyncio.sleep(seconds)
                    trace.on = False
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as place:
        figures = asyncio.run(trace_answer(Path(place))).figures()
    if as_json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    for name, figure in figures.items():
        sys.stdout.write(f"{name}: {', '.join(figure) if isinstance(figure, list) else figure}\n")


if __name__ == "__main__":
    main()
