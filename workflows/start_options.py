"""Makes what a turn is started with beside its input, by whomever it is started."""

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
    """Fail a workflow whose input names the turn or session of another workflow id.

    Ids say who may read and answer. A workflow under another id would act for a turn that it is not.
    """
    own = workflow.info().workflow_id
    if own != key.workflow_id:
        raise ApplicationError(
            f"workflow `{own}` has the input of `{key.workflow_id}`: start it under that id",
            type="OtherWorkflowId",
            non_retryable=True,
        )


def memo(turn: TurnInput, digest: str = "") -> dict[str, str]:
    """Makes title, requester, store, and the input's `digest` where the same turn may be started again."""
    again = {names.MEMO_INPUT_DIGEST: digest} if digest else {}
    # In the memo, which a codec encrypts: search attributes are plain text to all who may read the server's tables.
    asked = {names.MEMO_TITLE: title(turn), names.MEMO_REQUESTER: turn.principal.user}
    # By which `signoff doctor` finds turns that no worker touches, without reading their histories.
    store = {names.MEMO_STORE: turn.principal.store_id} if turn.principal.store_id else {}
    return {**again, **asked, **store}


def session_memo(first: MailboxMessage) -> dict[str, str]:
    """Makes the title and owner, for lists, of a session that begins with `first`."""
    return {names.MEMO_TITLE: _brief(_words(first.message)[:1]), names.MEMO_REQUESTER: first.principals[0].user}


def attributes(turn: TurnInput) -> TypedSearchAttributes:
    """Makes the search attributes of a turn that begins."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(temporal_metadata.ACTOR, turn.actor),
            SearchAttributePair(temporal_metadata.TENANT, turn.tenant_id),
        ]
    )


def session_attributes(tenant: str) -> TypedSearchAttributes:
    """Makes the search attributes of a session that begins."""
    return TypedSearchAttributes([SearchAttributePair(temporal_metadata.TENANT, tenant)])


def priority(tenant: str) -> Priority:
    """Makes the priority of a workflow of `tenant`, which its activities and children inherit.

    Where tasks queue up, a server that knows fairness gives tenants equal shares of the workers.
    """
    return Priority(fairness_key=tenant)


def summary(turn: TurnInput) -> str:
    """Writes one line for Temporal's own list."""
    return temporal_metadata.summary(f"{turn.actor}: {title(turn)}")


def title(turn: TurnInput) -> str:
    """Returns the first words of the message: the first one's, or the last one's after a session's earlier turns."""
    texts = [words for message in turn.messages for words in _words(message)]
    return _brief(texts[-1:] if turn.in_session else texts[:1])


def _words(message: Message) -> list[str]:
    return [text_of(part.text) for part in message.parts if isinstance(part, TextPart)]


def _brief(texts: list[str]) -> str:
    return " ".join("".join(texts).split())[:80]
