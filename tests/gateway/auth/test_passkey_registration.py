import dataclasses
import json

import pytest
from gateway_login import browser, hidden, locked_rig, words
from gateway_rig import GatewayRig
from oidc_provider import Provider
from passkey_device import PRESENT, PasskeyDevice
from provider_login import login_settings, sign_in_at_provider

from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel
from signoff.store.messages.notices import Notices
from signoff.store.questions.passkeys import Passkeys
from signoff.testing.builders import a_person

BASE = "http://localhost:8300"


@pytest.fixture
def locked(rig: GatewayRig, provider: Provider) -> GatewayRig:
    channels = Channels({"chat": DeclaredChannel("chat", "signoff.testing.recording_channel")})
    rig = rig.beside(catalog=dataclasses.replace(rig.deps.catalog, channels=channels))
    people = (a_person("ana", name="Ana", identities={"oidc": (f"{provider.issuer}#ana-at-work",)}),)
    return locked_rig(rig, people=people, **login_settings(provider, {}))


@pytest.mark.parametrize(("flags", "added"), [(None, 1), (PRESENT, 0)], ids=["verified", "unverified"])
async def test_person_registers_a_passkey_after_sign_in_by_the_provider(
    locked: GatewayRig, provider: Provider, flags: int | None, added: int
) -> None:
    provider.claims = {"sub": "ana-at-work"}
    device = PasskeyDevice("localhost", BASE)
    device.flags = device.flags if flags is None else flags
    async with browser(locked) as page:
        page.base_url = BASE
        await sign_in_at_provider(page)
        form = hidden((await page.get("/passkeys")).text, "/passkeys")
        begun = (await page.post("/passkeys/begin", data=form)).json()
        created = device.create(begun["create"]["challenge"])
        sent = {"nonce": begun["nonce"], "created": json.dumps(created)}
        answer = await page.post("/passkeys", data=form | sent)
        assert answer.status_code == (303 if added else 422), words(answer.text)
        assert (await page.post("/passkeys", data=sent)).status_code == 403
        assert words((await page.get("/passkeys")).text).count("Passkey 1, added") == added
    assert len(await Passkeys(locked.deps.store).list_of("main", "ana")) == added
    acts = [json.loads(each.data)["act"] for each in await locked.acts()]
    assert ("passkey added" in acts) == bool(added)
    notices = await Notices(locked.deps.store).list_unrouted()
    assert [(each.person, each.notice.kind) for each in notices] == [("ana", "passkey")] * added
