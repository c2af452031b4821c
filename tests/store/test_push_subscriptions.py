from signoff.contracts.limits import BROWSERS_OF_ONE
from signoff.contracts.person import PushSubscription
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.store.store import Store

KEY, OTHER_KEY = "key", "other key"


def browser(name: str, auth: str = "secret") -> PushSubscription:
    return PushSubscription(endpoint=f"https://push.example/{name}", p256dh="point", auth=auth)


async def added(store: Store, tenant: str, person: str, subscription: PushSubscription, key: str = KEY) -> bool:
    return await PushSubscriptions(store).add(tenant, person, key, subscription, lambda connection: None)


async def test_browsers_are_of_one_person_tenant_and_key(store: Store) -> None:
    known = PushSubscriptions(store)
    assert await added(store, "main", "ana", browser("phone"))
    assert await added(store, "main", "ana", browser("desk"))
    assert await added(store, "acme", "ana", browser("other"))
    assert await added(store, "main", "bo", browser("bo"), OTHER_KEY)
    assert {each.endpoint[-5:] for each in await known.list_of("main", "ana", KEY)} == {"phone", "/desk"}
    assert await known.list_of("main", "ana", OTHER_KEY) == []
    assert await known.find_people("main", KEY) == {"ana"}
    assert await known.find_people("acme", KEY) == {"ana"}
    assert await known.find_people("main", OTHER_KEY) == {"bo"}


async def test_browser_follows_its_person_by_its_keys_alone(store: Store) -> None:
    """An endpoint can be seen. Its keys are known to the browser and the gateway alone."""
    known = PushSubscriptions(store)
    await added(store, "main", "ana", browser("shared"))
    await added(store, "main", "bo", browser("shared", auth="guessed"))
    assert await known.find_people("main", KEY) == {"ana", "bo"}
    await added(store, "acme", "zoe", browser("shared"))
    assert await known.find_people("main", KEY) == {"bo"}
    assert await known.find_people("acme", KEY) == {"zoe"}


async def test_only_the_own_browser_is_removed_and_recorded(store: Store) -> None:
    known, records = PushSubscriptions(store), list[str]()
    await added(store, "main", "ana", browser("phone"))

    async def removed(tenant: str, person: str) -> bool:
        name = browser("phone").id
        return await known.remove(tenant, person, name, lambda connection: records.append(f"{tenant}/{person}"))

    people = (("main", "bo"), ("acme", "ana"), ("main", "ana"), ("main", "ana"))
    assert [await removed(*each) for each in people] == [False, False, True, False]
    assert records == ["main/ana"]
    assert await known.find_people("main", KEY) == frozenset()


async def test_forgotten_browser_keeps_its_renewed_keys(store: Store) -> None:
    known = PushSubscriptions(store)
    await added(store, "main", "ana", browser("phone", auth="new"))
    await known.forget("main", "ana", browser("phone", auth="old"))
    await known.forget("main", "bo", browser("phone", auth="new"))
    assert await known.find_people("main", KEY) == {"ana"}
    await known.forget("main", "ana", browser("phone", auth="new"))
    assert await known.find_people("main", KEY) == frozenset()


async def test_person_has_a_limited_number_of_browsers(store: Store) -> None:
    known = PushSubscriptions(store)
    assert [await added(store, "main", "ana", browser(str(number))) for number in range(BROWSERS_OF_ONE + 1)] == [
        *[True] * BROWSERS_OF_ONE,
        False,
    ]
    assert await added(store, "main", "ana", browser("0", auth="renewed"))
    assert await added(store, "main", "bo", browser("bo"))
    assert len(await known.list_of("main", "ana", KEY)) == BROWSERS_OF_ONE


async def test_new_key_of_the_installation_replaces_outdated_browsers(store: Store) -> None:
    for number in range(BROWSERS_OF_ONE):
        await added(store, "main", "ana", browser(str(number)))
    assert await added(store, "main", "ana", browser("phone"), OTHER_KEY)
    assert await PushSubscriptions(store).list_of("main", "ana", KEY) == []
