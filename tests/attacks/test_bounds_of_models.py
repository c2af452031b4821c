import json
from typing import Any

from attack_site import AttackSite, Call, approval_id, payee, receipt
from bounds_kit import bearable

from signoff.contracts import limits
from signoff.contracts.canonical_json import canonical_json


async def codes(site: AttackSite, *calls: Call) -> list[str]:
    rui = site.person("rui")
    result = await rui.result(await rui.ask(list(calls)))
    return [each["code"] for each in result["calls"]]


async def read_and_approved(site: AttackSite, tool: str, args: dict[str, Any]) -> str:
    ana, browser = site.person("ana"), await site.browser("ana")
    key = await site.person("rui").ask([(tool, args)])
    approval = approval_id(key)
    shown = await ana.waiting(approval)
    for _ in range(3):
        assert (await browser.http.get(f"/approvals/{approval}")).status_code == 200
        assert (await browser.http.get("/")).status_code == 200
        assert (await ana.http.get("/v1/approvals")).status_code == 200
    for page in range(1, limits.MAX_VALUES // limits.VALUES_PER_PAGE + 2):
        assert (await browser.http.get(f"/approvals/{approval}/values?page={page}")).status_code == 200
    given = receipt(await ana.decide(shown, seen=shown.view["seen"]))
    assert given["status"] in ("accepted", "pending"), given
    result = await site.person("rui").result(key)
    return str(result["calls"][0]["code"])


async def test_arguments_over_the_byte_limit_are_refused(site: AttackSite) -> None:
    # `ARGUMENTS_BYTES` of one text, plain and of marks that need escapes; one byte more is refused. With twice as much
    # accepted in `_arguments` of `activities/model_activity.py` and in `shape_problem` approvers were asked about the
    # call with one byte more; either alone refused it.
    to = payee()

    def args(letter: str, over: int = 0) -> dict[str, Any]:
        shell = len(canonical_json({"items": [1], "memo": "", "to": to}))
        deps = limits.ARGUMENTS_BYTES - shell + over
        width = len(letter.encode())
        return {"items": [1], "memo": letter * (deps // width) + "x" * (deps % width), "to": to}

    assert len(canonical_json(args("m"))) == limits.ARGUMENTS_BYTES
    async with bearable(site):
        assert await codes(site, ("batch", args("m", over=1))) == ["input_invalid"]
        for letter in ("m", "\u202e", "\u0301", "\u0323\u0301"):
            assert await read_and_approved(site, "batch", args(letter)) == "ok"


async def test_arguments_over_the_value_or_depth_limit_are_refused(site: AttackSite) -> None:
    # `MAX_VALUES` and `MAX_DEPTH`: every value can be opened; one value, or one level, more is refused. Without the
    # check of `MAX_VALUES` in `bounds_problem` approvers were asked about the first of those with more, and with twice
    # `MAX_DEPTH` there about the second.
    most = limits.MAX_VALUES - 4

    def nested(levels: int) -> dict[str, Any]:
        deep: Any = 1
        # The arguments, the list, its item, and the value itself.
        for _ in range(levels - 4):
            deep = [deep]
        return {"items": [{"deep": deep}], "to": to}

    to = payee()
    async with bearable(site):
        more = {"items": [1] * (most + 1), "memo": "m", "to": to}
        assert await codes(site, ("batch", more), ("order", nested(limits.MAX_DEPTH + 1))) == ["input_invalid"] * 2
        numbers = [index * 1e-7 for index in range(most)]
        assert await read_and_approved(site, "batch", {"items": [9**16] * most, "memo": "m", "to": to}) == "ok"
        assert await read_and_approved(site, "order", nested(limits.MAX_DEPTH)) == "ok"
        assert await read_and_approved(site, "order", {"items": [{"a": numbers[: most - 1]}], "to": to}) == "ok"


async def test_calls_over_the_limit_of_a_completion_are_refused(site: AttackSite) -> None:
    # `CALLS_PER_COMPLETION` as large as one request can ask for, each with a card; calls beyond it are refused.
    # Without the check of `CALLS_PER_COMPLETION` in `ModelActivity._call` the three beyond it ran.
    rui, ana, browser = site.person("rui"), site.person("ana"), await site.browser("ana")
    memo, half = "m" * 15_000, limits.CALLS_PER_COMPLETION // 2
    calls: list[Call] = [("batch", {"items": [1], "memo": memo, "to": payee()}) for _ in range(half)]
    calls += [("order", {"items": [{"memo": memo[:14_000], "n": n}], "to": payee()}) for n in range(half)]
    calls += [("look", {"place": "x"})] * 3
    assert len(json.dumps(calls)) < limits.REQUEST_BODY_BYTES
    async with bearable(site):
        key = await rui.ask(calls)
        for at in (1, half, limits.CALLS_PER_COMPLETION):
            await ana.waiting(approval_id(key, f"c1.{at}"))
        name = ".".join(key)
        for path in (f"/turns/{name}", f"/turns/{name}?part=thread", "/", f"/sessions/{key.tenant}.{key.session}"):
            assert (await browser.http.get(path)).status_code in (200, 404)
        seen = await rui.turn(key)
        settled = [each["outcome"]["code"] for each in seen["calls"] if each["outcome"] is not None]
        assert settled == ["too_many_calls"] * 3
        assert (await rui.http.post(f"/v1/turns/{name}/cancel", json={})).status_code == 202
        await rui.result(key)


async def test_turn_ends_at_its_limit_of_completions_and_calls(site: AttackSite) -> None:
    # `MAX_COMPLETIONS` of `CALLS_PER_COMPLETION` each are `MAX_CALLS`: the turn ends and can be read at once. With
    # twice the completions and the calls in `TurnState.reached_cap` the model was asked 22 times; with only the
    # completions doubled, the calls ended the turn. Without the check of `MAX_CALLS_PER_TOOL` in `caps` all 1,000
    # calls ran.
    rui, browser = site.person("rui"), await site.browser("rui")
    rounds: list[list[Call]] = [
        [("look", {"place": f"{turn} {at}"}) for at in range(limits.CALLS_PER_COMPLETION)]
        for turn in range(limits.MAX_COMPLETIONS + 1)
    ]
    async with bearable(site):
        key = await rui.ask(*rounds)
        result = await rui.result(key)
        assert result["completions"] == limits.MAX_COMPLETIONS
        assert len(result["calls"]) == limits.MAX_CALLS == limits.MAX_COMPLETIONS * limits.CALLS_PER_COMPLETION
        assert [each["code"] for each in result["calls"]].count("ok") == limits.MAX_CALLS_PER_TOOL
        assert (await browser.http.get(f"/turns/{'.'.join(key)}")).status_code == 200
        assert (await site.person("aud").http.get(f"/v1/audit/{'.'.join(key)}")).status_code == 200
