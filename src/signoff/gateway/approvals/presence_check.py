"""Lets a person's passkey prove their presence at exactly one decision."""

from typing import Final

from sqlalchemy import Connection

from signoff.approvals.machine import refusal
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision, PasskeyAssertion, Presence, at_least
from signoff.contracts.errors import Refused
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor
from signoff.contracts.responses import PasskeyOptions
from signoff.decisions.answer_taker import refuse
from signoff.formats.replace import replace
from signoff.gateway.deps import GatewayDeps
from signoff.keys.passkeys import assertion_options, counter_of, decision_challenge, presence_problem, relying_party
from signoff.store.questions.passkeys import Passkeys, raise_counter, use_nonce

NONE_HERE: Final = "you have no passkey for this gateway; register one on its page `/passkeys`"


class PresenceCheck:
    """Makes challenges, verifies assertions, and uses each challenge once. Methods raise `StoreUnavailable`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._passkeys = Passkeys(deps.store)
        self._party = relying_party(deps.settings.public_url)

    async def options(self, decision: Decision, tenant: str) -> PasskeyOptions:
        """Return a challenge for exactly this decision. Raises `Refused`."""
        known = await self._passkeys.list_of(tenant, decision.subject)
        credentials = tuple(each.passkey.credential for each in known if self._fits(each.passkey.rp_id))
        if not credentials:
            raise Refused(NONE_HERE, code="passkey")
        nonce = await self._passkeys.make_nonce(tenant, decision.subject)
        try:
            challenge = decision_challenge(decision, nonce)
        except NotCanonical:
            raise Refused("the arguments cannot be bound to a passkey", code="malformed") from None
        return PasskeyOptions(nonce=nonce, public_key=assertion_options(self._party, challenge, credentials))

    async def prove(
        self, request: ApprovalRequest, decision: Decision, given: PasskeyAssertion | None, author: DecisionAuthor
    ) -> Decision | Receipt:
        """Return the decision with its proof, unchanged if it needs none, or a refusal."""
        if given is None:
            needs = at_least(request.min_assurance, "present")
            return refusal(request, "assurance", why="passkey") if needs else decision
        if not at_least(author.assurance, "session"):
            return refusal(request, "assurance", why="passkey")
        known = (each.passkey for each in await self._passkeys.list_of(request.tenant, decision.subject))
        passkey = next((each for each in known if each.credential == given.credential), None)
        if passkey is None:
            return refusal(request, "assurance", "its passkey is none of this person", why="passkey_misfit")
        proved = replace(decision, assurance="present", presence=Presence(passkey=passkey, assertion=given))
        problem = presence_problem(proved, self._deps.verifier())
        if not self._fits(passkey.rp_id, passkey.origin):
            problem = "its passkey is for another address of the gateway"
        return refusal(request, "assurance", problem, why="passkey_misfit") if problem else proved

    def use(self, connection: Connection, decision: Decision) -> Receipt | None:
        """Use the challenge of a proved decision, in the transaction of its answer. Return a refusal, or `None`."""
        proof = decision.presence
        if proof is None:
            return None
        passkey, assertion = proof.passkey, proof.assertion
        if not use_nonce(connection, assertion.nonce, passkey.tenant, passkey.person):
            return refuse("assurance", decision.approval_id, why="passkey_used")
        if raise_counter(connection, passkey, counter_of(assertion)):
            return None
        return refuse("assurance", decision.approval_id, why="passkey_cloned")

    def _fits(self, rp_id: str, origin: str = "") -> bool:
        return rp_id == self._party.id and origin in ("", self._party.origin)
