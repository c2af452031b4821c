import json

from cli_kit import Cli, assert_one_sentence, waiting_request

from signoff.contracts.audit import CloudEvent, EventList


async def test_events_are_listed_and_followed(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 140")
    listed = EventList.model_validate((await served_cli("events", "list", "--json")).data)
    asked = next(each for each in listed.events if each.type == "approval.requested" and each.subject == card["id"])
    wanted = ("--after", str(asked.number), "--turn", card["turn"], "--count", "2")
    # One after the other, because both use this process's standard error. The followed events come later.
    approved = await served_cli("approve", card["code"])
    assert (approved.code, approved.err) == (0, "")
    ran = await served_cli("events", "follow", *wanted, "--json")
    assert (ran.code, ran.err) == (0, "")
    seen = [CloudEvent.model_validate(json.loads(line)) for line in ran.out.splitlines()]
    assert (len(seen), seen[0].type, seen[0].subject) == (2, "approval.decided", card["id"])
    assert seen[0].number > asked.number
    await served_cli("watch", card["turn"])
    table = await served_cli("events", "list", "--turn", card["turn"])
    assert "tool_call:pay" in table.out
    assert "approval.decided" in table.out
    (line,) = (await served_cli("events", "list", "--after", str(asked.number - 1), "--limit", "1")).out.splitlines()
    assert line.split()[:1] == [str(asked.number)]
    assert "approval.requested" in line
    assert "tool=pay" in line


async def test_limit_lists_the_newest_events_and_a_future_number_none(served_cli: Cli) -> None:
    await waiting_request(served_cli, "pay 150")
    listed = EventList.model_validate((await served_cli("events", "list", "--limit", "1", "--json")).data)
    assert [each.number for each in listed.events] == [listed.next]
    none = await served_cli("events", "list", "--after", str(listed.newest + 1_000))
    assert (none.code, none.out) == (0, "nothing happened\n")
    unknown = await served_cli("events", "list", "--turn", "nobodys-turn")
    assert "there is no turn" in assert_one_sentence(unknown)
