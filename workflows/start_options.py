"""Builds the start options of turns and sessions, for every caller that starts them."""

from temporalio import workflow
from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError

from signoff.contracts import names
from signoff.contracts.content import text_of
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import Message, TextPart
from signoff.contracts.session_messages import MailboxMessage
from signoff.contracts.turn import TurnInput
from signoff.workflows import temporal_metadata


def require_own_id(key: TurnKey | SessionKey) -> None:
    """Fail a workflow whose input names the turn or session of another workflow id: it could act in that one's name."""
    own = workflow.info().workflow_id
    if own != key.workflow_id:
        raise ApplicationError(
            f"workflow `{own}` has the input of `{key.workflow_id}`: start it under that id",
            type="OtherWorkflowId",
            non_retryable=True,
        )


def memo(turn: TurnInput, digest: str = "") -> dict[str, str]:
    """`digest` is the input's, if the same turn may be started again."""
    again = {names.MEMO_INPUT_DIGEST: digest} if digest else {}
    # Use the memo, which a codec encrypts. Anyone with access to the server's tables can read search attributes.
    request = {names.MEMO_TITLE: title(turn), names.MEMO_REQUESTER: turn.principal.user}
    # Lets `signoff doctor` find turns that no worker serves, without reading their histories.
    store = {names.MEMO_STORE: turn.principal.store_id} if turn.principal.store_id else {}
    return {**again, **request, **store}


def session_memo(first: MailboxMessage) -> dict[str, str]:
    return {names.MEMO_TITLE: _brief(_words(first.message)[:1]), names.MEMO_REQUESTER: first.principals[0].user}


def attributes(turn: TurnInput) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(temporal_metadata.ACTOR, turn.actor),
            SearchAttributePair(temporal_metadata.TENANT, turn.tenant_id),
        ]
    )


def session_attributes(tenant: str) -> TypedSearchAttributes:
    return TypedSearchAttributes([SearchAttributePair(temporal_metadata.TENANT, tenant)])


def priority(tenant: str) -> Priority:
    """Activities and children inherit the priority.

    If tasks queue up, a server that supports fairness gives tenants equal shares of the workers.
    """
    return Priority(fairness_key=tenant)


def summary(turn: TurnInput) -> str:
    return temporal_metadata.summary(f"{turn.actor}: {title(turn)}")


def title(turn: TurnInput) -> str:
    """Return the start of the first text, or of the last one in a session, where earlier turns come first."""
    texts = [words for message in turn.messages for words in _words(message)]
    return _brief(texts[-1:] if turn.in_session else texts[:1])


def _words(message: Message) -> list[str]:
    return [text_of(part.text) for part in message.parts if isinstance(part, TextPart)]


def _brief(texts: list[str]) -> str:
    return " ".join("".join(texts).split())[:80]
