from signoff.plugins.mcp.held_requests import HeldRequests, RequestName


def test_request_is_cancelled_by_its_name() -> None:
    held = HeldRequests()
    mine, other = RequestName("s1", "1"), RequestName("s2", "1")
    with held.hold(mine) as first, held.hold(other) as second, held.hold(None) as nameless:
        held.cancel(mine)
        assert (first.is_set(), second.is_set(), nameless.is_set()) == (True, False, False)
    with held.hold(mine) as third:
        assert not third.is_set()
    held.cancel(mine)
    assert not third.is_set()


def test_reused_id_names_the_newer_request() -> None:
    held, name = HeldRequests(), RequestName("s1", "1")
    with held.hold(name) as newer:
        with held.hold(name) as newest:
            pass
        held.cancel(name)
        assert (newer.is_set(), newest.is_set()) == (False, False)
