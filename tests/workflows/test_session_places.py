from datetime import UTC, datetime
from typing import Any

from session_rig import message, talk, words
from tables import table
from temporalio.worker import Replayer
from turn_fixtures import TurnRig, catalog_of

from signoff.contracts import names
from signoff.contracts.call import Place
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.session_messages import SessionInput, SessionReceipt, TurnReport
from signoff.contracts.turn import TurnError, TurnInput
from signoff.registry.actor import Actor, Route
from signoff.testing.scripted_model import ScriptedModel, last_user_text, respond
from signoff.worker import SignoffPlugin
from signoff.workflows.conversation import Conversation

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WHOSE = "`actor`: this session was passed on to `bank`; name the actor whose `route`, `step` and `transient` these are"


def session(**fields: Any) -> Conversation:
    return Conversation(SessionInput(engine=names.ENGINE, session_id="s", actor="desk", **fields))


def receipt_of(found: Conversation, message_id: str, **fields: Any) -> SessionReceipt:
    return found.say([message("go", message_id, **fields).model_dump(mode="json")], NOW)


def begun(found: Conversation) -> TurnInput:
    item = found.next(NOW)
    assert item is not None
    return found.begin(item, NOW)


def passed_on(found: Conversation, message_id: str = "a") -> None:
    receipt_of(found, message_id)
    begun(found)
    found.report([TurnReport(turn=message_id, state="passed", pass_to="bank").model_dump(mode="json")], NOW)
    found.report([TurnReport(turn=begun(found).turn_id, state="complete").model_dump(mode="json")], NOW)


@table("place", {"route": "trip"}, {"step": "book"}, {"route": "trip", "step": "book"})
def test_route_without_actor_is_refused_after_the_session_was_passed_on(place: dict[str, str]) -> None:
    found = session()
    passed_on(found)
    refused = receipt_of(found, "b", **place)
    assert (refused.status, refused.code, refused.message) == ("refused", "malformed", WHOSE)
    assert found.next(NOW) is None
    assert receipt_of(found, "c").status == "accepted"
    given = begun(found)
    assert (given.actor, given.route) == ("bank", "")
    assert receipt_of(found, "b", actor="desk", **place).status == "accepted"
    found.step_aside("c")
    given = begun(found)
    assert (given.actor, given.route, given.step) == ("desk", place.get("route", ""), place.get("step", ""))


def test_actor_chosen_by_name_needs_no_name_again() -> None:
    found = session()
    passed_on(found)
    assert receipt_of(found, "b", actor="bank", route="loan").status == "accepted"
    assert receipt_of(found, "c", route="loan").status == "accepted"
    for _ in "bc":
        given = begun(found)
        found.step_aside(given.turn_id)
        assert (given.actor, given.route) == ("bank", "loan")
    assert receipt_of(found, "d", route="loan").status == "accepted"


def test_queued_message_keeps_the_actor_of_its_route() -> None:
    found = session()
    receipt_of(found, "a")
    begun(found)
    receipts = [receipt_of(found, "b", route="trip"), receipt_of(found, "b", route="trip")]
    assert [(each.status, each.code) for each in receipts] == [("accepted", ""), ("accepted", "duplicate")]
    found.report([TurnReport(turn="a", state="passed", pass_to="bank").model_dump(mode="json")], NOW)
    heir = begun(found)
    assert (heir.turn_id, heir.actor) == ("a-2", "bank")
    found.step_aside(heir.turn_id)
    given = begun(found)
    assert (given.turn_id, given.actor, given.route) == ("b", "desk", "trip")


def test_next_run_of_a_session_keeps_the_requesters_choice_of_actor() -> None:
    found = session()
    passed_on(found)
    kept = found.snapshot().model_dump(mode="json")
    assert receipt_of(Conversation(SessionInput.model_validate(kept)), "b", route="trip").message == WHOSE
    del kept["chosen"]
    assert receipt_of(Conversation(SessionInput.model_validate(kept)), "b", route="trip").status == "accepted"


async def test_refused_route_message_names_the_current_actor(turn_rig: TurnRig) -> None:
    def driver(request: CompletionRequest) -> Completion:
        if request.model == "first" and last_user_text(request) == "money":
            return respond("The bank will tell you.", "passed", passTo="bank")
        return respond(f"{request.model}: {words(request.messages[-1])}")

    actors = [
        Actor(name="desk", model="first", routes=(Route(name="trip"),)),
        Actor(name="bank", model="second", routes=(Route(name="loan"),)),
    ]
    async with turn_rig.running(catalog_of([], actors=actors), ScriptedModel(driver)) as turns:
        found = talk(turns)
        await found.say("money", "a", route="trip")
        await found.answer("a-2")
        refused = await found.say("more", "b", route="trip")
        assert (refused.status, refused.message) == ("refused", WHOSE)
        await found.say("more", "b", route="trip", actor="desk")
        assert await found.answer("b") == "first: more"
        await found.say("again", "c", route="trip")
        assert await found.answer("c") == "first: again"
        history = await found.handle.fetch_history()
        replayer = Replayer(
            workflows=[],
            plugins=[SignoffPlugin(turns.deps)],
            data_converter=turn_rig.client.data_converter,
            namespace=turn_rig.client.namespace,
        )
        assert (await replayer.replay_workflow(history)).replay_failure is None


def moved(found: Conversation, turn: str, step: str, **fields: Any) -> None:
    place = Place(actor="desk", route="trip", step=step, seal=step)
    report = TurnReport(**{"turn": turn, "state": "complete", "place": place} | fields)
    found.report([report.model_dump(mode="json")], NOW)


def place_of(found: Conversation) -> tuple[str, str]:
    view = found.view()
    return view.route, view.step


def on_a_trip() -> Conversation:
    found = session()
    receipt_of(found, "a", route="trip")
    begun(found)
    return found


def test_session_follows_its_turn_to_another_step() -> None:
    found = on_a_trip()
    moved(found, "a", "buy")
    assert place_of(found) == ("trip", "buy")
    receipt_of(found, "b")
    given = begun(found)
    assert (given.route, given.step, given.seal) == ("trip", "buy", "buy")
    # A report without a move and a repeated report leave the session there.
    moved(found, "b", "pay", place=None)
    moved(found, "a", "ask")
    assert place_of(found) == ("trip", "buy")


def test_turn_overtaken_by_a_message_does_not_move_the_session() -> None:
    found = on_a_trip()
    found.step_aside("a")
    receipt_of(found, "b", route="trip", step="pay")
    begun(found)
    moved(found, "a", "buy")
    assert place_of(found) == ("trip", "pay")


def test_first_of_two_parallel_turns_to_end_moves_the_session() -> None:
    found = on_a_trip()
    found.step_aside("a")
    receipt_of(found, "b")
    begun(found)
    moved(found, "b", "pay")
    moved(found, "a", "buy")
    assert place_of(found) == ("trip", "pay")


@table(
    "fields",
    {"state": "error", "error": TurnError(code="config_error", message="gone")},
    {"place": Place(actor="bank", route="trip", step="buy")},
)
def test_report_with_an_error_or_foreign_place_does_not_move_the_session(fields: dict[str, Any]) -> None:
    found = on_a_trip()
    moved(found, "a", "buy", **fields)
    assert place_of(found) in (("trip", ""), ("", ""))


def test_session_keeps_its_place_in_its_next_run() -> None:
    found = on_a_trip()
    moved(found, "a", "buy")
    again = Conversation(SessionInput.model_validate(found.snapshot().model_dump(mode="json")))
    assert place_of(again) == ("trip", "buy")


def test_report_without_a_move_omits_the_place() -> None:
    report = TurnReport(turn="a", state="complete")
    assert "place" not in report.model_dump(mode="json")
