import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence, waiting_request
from failures import Failure
from gateway_rig import turn_of
from some import some
from tables import table

from signoff.cli.local.installation import find_installation
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.ids import show_code
from signoff.formats.json_schema import compile_schema
from signoff.gateway.approvals.argument_form import fields_of
from signoff.gateway.approvals.argument_parser import problem_words, read_fields, set_values
from signoff.store.questions.questions import Questions
from signoff.store.store import working_store
from signoff.store.tickets import ticket_key

PIN = "4711-very-secret"


def editor(tmp_path: Path, *replacements: tuple[str, str]) -> str:
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        f"log, file = pathlib.Path({str(tmp_path / 'seen.txt')!r}), pathlib.Path(sys.argv[1])\n"
        "seen = log.read_text().split('\\f') if log.exists() else []\n"
        f"pairs = {list(replacements)!r}\n"
        "old, new = pairs[min(len(seen), len(pairs) - 1)]\n"
        "log.write_text('\\f'.join([*seen, file.read_text()]))\n"
        "file.write_text(file.read_text().replace(old, new) + ' ' * (old != new))\n"
    )
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


async def shown(served_cli: Cli, card: dict[str, Any]) -> ApprovalRequest:
    return ApprovalRequest.model_validate((await served_cli("show", card["id"], "--json")).data)


async def test_argument_is_edited_before_approval(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2000")
    ran = await served_cli("approve", card["code"], "--set", "amount=1500", "--set", "to=Bo")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.strip() == "approved: Pay 1500 EUR to Bo (Amount: 2000 -> 1500; To: Ana -> Bo)"
    watched = await served_cli("watch", card["turn"])
    assert "ok paid 1500 to Bo" in watched.out
    text = (await served_cli("show", card["id"])).out
    assert "edited by Approver" in text
    assert "Amount: 2000 -> 1500" in text
    assert PIN not in text + ran.out


@pytest.mark.parametrize(
    ("setting", "code", "expected"),
    [
        ("amount=much", 1, "`amount` must be a whole number, such as 380"),
        ("amuont=5", 1, "there is no argument `amuont`; did you mean `amount`?"),
        ("amount=2100", 1, "you changed nothing; change a value, or approve the request unchanged"),
    ],
)
async def test_invalid_edit_is_refused_in_one_sentence(served_cli: Cli, setting: str, code: int, expected: str) -> None:
    card = await waiting_request(served_cli, "pay 2100")
    assert assert_one_sentence(await served_cli("approve", card["code"], "--set", setting), code) == expected
    assert (await shown(served_cli, card)).state == "pending"


async def test_edit_denied_by_the_policy_is_refused(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2200")
    ran = await served_cli("approve", card["code"], "--set", "amount=9000", "--json")
    assert (ran.code, ran.data["code"]) == (1, "not_allowed")
    assert (await shown(served_cli, card)).revision == 1


async def test_invalid_edit_options_exit_with_2(served_cli: Cli) -> None:
    assert (await served_cli("approve", "K7Q-2FM", "--set", "amount")).code == 2
    assert (await served_cli("approve", "K7Q-2FM", "K7Q-2FN", "--set", "amount=5")).code == 2


async def test_editor_edits_the_arguments(served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = await waiting_request(served_cli, "pay 2300")
    clean_env.setenv("EDITOR", editor(tmp_path, ("2300", '"x"'), ('"x"', "1300")))
    ran = await served_cli("approve", card["code"], "--edit")
    assert (ran.code, ran.err) == (0, "")
    first, again = ran.out.strip().splitlines()
    assert first == "`amount` must be of type integer; the editor opens again, leave it as it is to give up"
    assert again.startswith("approved: Pay 1300 EUR to Ana")
    assert PIN not in (tmp_path / "seen.txt").read_text()
    request = await shown(served_cli, card)
    assert request.args.inline == {"amount": 1300, "to": "Ana", "pin": "hidden, 16 characters"}
    assert "ok paid 1300 to Ana" in (await served_cli("watch", card["turn"])).out


async def test_invalid_json_from_the_editor_is_reported(
    served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = await waiting_request(served_cli, "pay 2350")
    clean_env.setenv("EDITOR", editor(tmp_path, ("2350", '"2350'), ('"2350', "1350")))
    first, again = (await served_cli("approve", card["code"], "--edit")).out.strip().splitlines()
    assert first.startswith("this is not JSON: ")
    assert again.startswith("approved: Pay 1350 EUR to Ana")


async def test_unchanged_editor_decides_nothing(served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = await waiting_request(served_cli, "pay 2400")
    clean_env.setenv("EDITOR", "true")
    message = assert_one_sentence(await served_cli("approve", card["code"], "--edit"))
    assert message == "you changed nothing; change a value, or approve the request unchanged"
    clean_env.setenv("EDITOR", str(tmp_path / "there-is-none"))
    assert "name an editor in EDITOR" in assert_one_sentence(await served_cli("approve", card["code"], "--edit"))
    assert (await shown(served_cli, card)).state == "pending"


async def test_answer_ends_its_call_without_a_run(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "hurry")
    odd = await served_cli("answer", card["code"], "{minutes")
    assert (odd.code, "JSON" in odd.err) == (2, True)
    wrong = await served_cli("answer", card["code"], '{"minutes": "few"}', "--json")
    assert (wrong.code, wrong.data["code"]) == (1, "malformed")
    assert wrong.data["message"].startswith("`answer.minutes` ")
    code = show_code(card["code"])
    assert f"signoff answer {code} JSON" in (await served_cli("show", card["code"])).out
    ran = await served_cli("answer", card["code"], '{"minutes": 5}', "--reason", "no need to run")
    assert (ran.code, ran.out.strip()) == (0, "answered: Hurry, because now")
    text = (await served_cli("show", card["id"])).out
    assert '{"minutes": 5}' in text


async def test_answer_to_a_tool_without_a_schema_is_refused(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2510")
    ran = await served_cli("answer", card["code"], '"no"', "--json")
    assert (ran.code, ran.data["why"]) == (1, "no_answer")


async def test_happened_is_refused_for_a_plain_request(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2500")
    ran = await served_cli("happened", card["code"], "--result", "paid", "--json")
    assert (ran.code, ran.data["code"]) == (1, "malformed")


SCHEMA = {
    "type": "object",
    "properties": {
        "class": {"enum": ["economy", "business"]},
        "refundable": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"no": {"type": "string"}}, "required": ["no"]},
    },
}
ARGS = {"class": "economy", "refundable": False, "tags": ["a"], "to": {"no": "1"}}


@table(
    ("setting", "changed"),
    ({"class": "business"}, {"class": "business"}),
    ({"refundable": "yes"}, {"refundable": True}),
    ({"refundable": "true"}, {"refundable": True}),
    ({"tags": '["b", "c"]'}, {"tags": ["b", "c"]}),
    ({"tags": "b"}, {"tags": ["b"]}),
    ({"to.no": "007"}, {"to": {"no": "007"}}),
)
def test_set_value_is_read_by_the_schema(setting: dict[str, str], changed: dict[str, Any]) -> None:
    assert set_values(ARGS, setting, compile_schema(SCHEMA)).args == {**ARGS, **changed}


@pytest.mark.parametrize("setting", [{"class": "first"}, {"refundable": "1"}])
def test_unreadable_set_value_is_reported(setting: dict[str, str]) -> None:
    typed = set_values(ARGS, setting, compile_schema(SCHEMA))
    assert problem_words(typed).startswith(f"`{next(iter(setting))}` ")


def test_invalid_json_list_is_refused() -> None:
    with pytest.raises(Refused, match="`tags` is not JSON"):
        set_values(ARGS, {"tags": "["}, compile_schema(SCHEMA))
    with pytest.raises(Refused, match="`tags` is nested too deeply"):
        set_values(ARGS, {"tags": "[" * 100_000}, compile_schema(SCHEMA))


def test_unknown_argument_suggests_the_nearest() -> None:
    with pytest.raises(NotFound, match=r"did you mean `to.no`"):
        set_values(ARGS, {"to.nr": "x"}, compile_schema(SCHEMA))


async def doubted(served_cli: Cli, text: str) -> dict[str, Any]:
    card = await waiting_request(served_cli, text)
    place = find_installation()
    async with working_store(place.settings) as store:
        rows = some(await Questions(store).read(card["id"]))
        asked, key = rows.latest, ticket_key(rows.latest.digest, 1)
        await store.claim(key, workflow=turn_of(card["id"]).workflow_id, call=asked.call, tool=asked.tool)
        assert (await served_cli("approve", card["id"])).code == 0
        while rows.latest.kind != "in_doubt":
            await asyncio.sleep(0.05)
            rows = some(await Questions(store).read(card["id"]))
    return card


@pytest.mark.failure("Did this happen?")
async def test_unknown_outcome_is_confirmed_from_a_terminal(served_cli: Cli, failure: Failure) -> None:
    card = await doubted(served_cli, "pay 2600")
    shown_text = (await served_cli("show", card["id"])).out
    assert shown_text.startswith("Did this happen? Pay 2600 EUR to Ana")
    failure.assert_seen(shown_text)
    for found in ("in doubt", "otherwise given up", "signoff happened", "it did not happen: run it", "give up"):
        assert found in shown_text
    assert "because" not in shown_text
    failure.follow("signoff happened")
    ran = await served_cli("happened", card["code"], "--result", "receipt no 7")
    assert (ran.code, ran.out.strip()) == (0, "it happened: Pay 2600 EUR to Ana")
    assert "ok receipt no 7" in (await served_cli("watch", card["turn"])).out
    settled = (await served_cli("show", card["id"])).out
    assert "what came of it" in settled
    assert "happened by Approver" in settled


async def test_unknown_outcome_is_given_up_from_a_terminal(served_cli: Cli) -> None:
    card = await doubted(served_cli, "pay 2700")
    ran = await served_cli("deny", card["code"], "--reason", "cannot find out")
    assert (ran.code, ran.out.strip()) == (0, "given up: Pay 2700 EUR to Ana")
    assert "outcome unknown" in (await served_cli("watch", card["turn"])).out


NULLABLE = {
    "type": "object",
    "properties": {
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "labels": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "count": {"type": ["integer", "null"]},
        "size": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "id": {"type": "string"},
    },
}


@table(
    ("setting", "changed"),
    ({"name": None, "labels": None}, {"name": None, "labels": None}),
    ({"name": "null", "labels": "null"}, {"name": "null", "labels": ["null"]}),
    ({"count": "null"}, {"count": None}),
    ({"size": "large"}, {"size": "large"}),
    ({"size": "5"}, {"size": 5}),
    ({"size": '"5"'}, {"size": "5"}),
)
def test_edit_sets_null_and_values_of_unions(setting: dict[str, str | None], changed: dict[str, Any]) -> None:
    args = {"name": "x", "labels": ["a"], "count": 1, "size": 1, "id": "k"}
    typed = set_values(args, setting, compile_schema(NULLABLE))
    assert (problem_words(typed), typed.args) == ("", {**args, **changed})


def test_edit_to_null_is_refused_if_the_schema_forbids_it() -> None:
    typed = set_values({"id": "k"}, {"id": None}, compile_schema(NULLABLE))
    assert problem_words(typed) == "`id` must be of type string"


def test_null_checkbox_of_the_form_sets_a_field_to_null() -> None:
    args: dict[str, Any] = {"name": "x", "id": "k"}
    fields = fields_of(args, NULLABLE)
    [name] = [field for field in fields if field.dotted == "name"]
    form = {field.key: field.shown for field in fields} | {name.null_key: "null"}
    assert read_fields(fields, form, args, None).args == {"name": None, "id": "k"}
    typed = read_fields(fields, form | {name.key: "y"}, args, None)
    assert problem_words(typed) == "`name` is both null and changed; choose one"
    empty = fields_of({"name": None}, NULLABLE)
    assert read_fields(empty, {name.key: "y", name.null_key: "null"}, {"name": None}, None).args == {"name": "y"}
