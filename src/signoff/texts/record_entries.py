"""Writes the entries of the audit log in words: one line per entry, from its kind and its facts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from signoff.contracts.audit import CLAIMED_SUBJECT
from signoff.contracts.call import RuleReference
from signoff.contracts.content import Remark
from signoff.languages.catalogue import ENGLISH, has_text, text
from signoff.languages.remarks import remark_text

_SHORT: Final = 8


def entry_words(kind: str, facts: Mapping[str, Any], language: str) -> str:
    """Write an unknown kind unchanged.

    May raise any error for facts that the engine did not write: their author is not trusted.
    """
    write = _KINDS.get(kind)
    words = write(_Facts(facts, language)) if write is not None else kind
    reason = facts.get("reason")
    return f"{words}: {reason}" if reason else words


def claim_words(words: str, language: str) -> str:
    """Mark the words of an entry as a claim, because only its turn reports them."""
    return text("entry.claimed", language, words=words)


def claimant_words(facts: Mapping[str, Any], language: str) -> str:
    """Mark the subject of an entry as a claim, because nothing proves it. "" without such a subject."""
    claimed = str(facts.get(CLAIMED_SUBJECT, ""))
    return text("entry.claimed_subject", language, who=claimed) if claimed else ""


class _Facts:
    def __init__(self, facts: Mapping[str, Any], language: str) -> None:
        self.facts = facts
        self._language = language

    def has(self, name: str) -> bool:
        return name in self.facts

    def text(self, name: str, /, **values: object) -> str:
        return text(name, self._language, **values)

    def get(self, name: str, instead: str = "?") -> Any:
        return self.facts.get(name, instead)

    def translate(self, name: str, key: str) -> Any:
        return self.facts[name] if name in self.facts else self.text(key)

    def code(self, name: str, key: str = "") -> str:
        if key and name not in self.facts:
            return self.text(key)
        code = str(self.facts.get(name))
        known = next(filter(has_text, (f"code.{code}", f"state.{code}", f"turn.{code}", f"call.{code}")), "")
        # In English, the code itself is the word.
        return text(known, self._language) if known and self._language != ENGLISH else code.replace("_", " ")

    def remarks(self, name: str) -> str:
        written = self.facts.get(name, ())
        remarks = [each if isinstance(each, str) else Remark.model_validate(each) for each in written]
        return remark_text(remarks, self._language)

    def names(self, name: str) -> str:
        return _join(self.facts.get(name, ()))

    @property
    def call(self) -> str:
        return f"{self.translate('tool', 'entry.a_tool')} {self.get('call', '')}".strip()

    @property
    def rule(self) -> str:
        """The rule's label, with the beginning of its policy's hash."""
        if not self.has("rule"):
            return self.text("entry.rule.none")
        policy = str(self.get("policy_hash", ""))[:_SHORT]
        label = RuleReference.model_validate(self.facts["rule"]).label
        return self.text("entry.rule.policy" if policy else "entry.rule", rule=label, policy=policy)


def _join(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))


def _turn(of: _Facts) -> str:
    if of.has("session_event"):
        return of.text("entry.turn.gone", id=of.get("id"), code=of.get("code"))
    if of.has("stop"):
        return of.text("entry.turn.stop", detail=of.get("stop"))
    if of.has("moved"):
        return of.text("entry.turn.moved", step=of.get("moved"), route=of.get("route"))
    if of.has("ended"):
        error = of.get("error", "")
        return of.text("entry.turn.failed" if error else "entry.turn.ended", state=of.code("ended"), error=error)
    return of.text(
        "entry.turn", actor=of.translate("actor", "entry.no_actor"), channel=of.translate("channel", "entry.no_channel")
    )


def _request(of: _Facts) -> str:
    number = of.get("quorum", "1")
    key = "entry.request.quorum" if int(number) > 1 else "entry.request"
    who = of.names("approvers") or of.text("entry.nobody")
    return of.text(key, call=of.call, rule=of.rule, who=who, n=str(number), code=of.get("code"))


def _revision(of: _Facts) -> str:
    if of.get("edited_by", ""):
        why = of.text("entry.revision.changed", names=of.names("changed") or of.text("entry.hidden"))
    else:
        why = of.remarks("notes") or of.text("entry.revision.again")
    return of.text("entry.revision", call=of.call, n=str(of.get("revision")), why=why)


def _attempt(of: _Facts) -> str:
    if of.has("session_event"):
        return _write_input(of)
    if of.has("act"):
        return _act(of)
    signed = of.text("entry.signed", signer=of.get("key_id"))
    proof = of.text("entry.unsigned") if of.get("unsigned", "yes") else signed
    proof = of.text("entry.vouched", reporter=of.get("reporter")) if of.has("reporter") else proof
    how = of.text(
        "entry.how", channel=of.get("channel"), assurance=of.code("assurance", "entry.no_assurance"), proof=proof
    )
    became = ": ".join(filter(None, (_status(of, "receipt"), of.remarks("remarks"))))
    key = "entry.attempt.to" if of.has("to") else "entry.attempt.for" if of.has("on_behalf") else "entry.attempt"
    whom = of.get("to", of.get("on_behalf", ""))
    return of.text(key, verdict=of.code("verdict", "entry.no_verdict"), principal=whom, how=how, became=became)


def _write_input(of: _Facts) -> str:
    what = f"{of.get('session_event')} {of.get('id', '')}".strip()
    key = "entry.session_event.more" if of.has("more") else "entry.session_event"
    return of.text(key, detail=what, status=_status(of, "code"), n=str(of.get("more", "")))


def _status(of: _Facts, code: str) -> str:
    return f"{of.code('status')} ({of.code(code)})" if of.has(code) else of.code("status")


def _write_allowed(of: _Facts) -> str:
    if of.has("act"):
        return _act(of)
    by = of.text("entry.grant", grant=of.get("grant")) if of.has("grant") else of.rule
    return of.text("entry.allowed", call=of.call, by=by)


def _write_proposed(of: _Facts) -> str:
    return of.text("entry.proposed", call=of.call)


def _write_settled(of: _Facts) -> str:
    return of.text("entry.settled", call=of.call, code=of.code("code"), gate=of.get("gate"), rule=of.rule)


def _execution(of: _Facts) -> str:
    if of.has("refused"):
        return of.text("entry.not_run", call=of.call, why=of.get("refused"))
    who = _join(each["subject"] for each in of.facts.get("decisions", ())) or of.rule
    key = "entry.begins.private" if of.get("private", "") else "entry.begins"
    return of.text(key, call=of.call, permit=of.code("permit"), who=who)


def _outcome(of: _Facts) -> str:
    words = of.text("entry.ends", call=of.call, code=of.code("code"), ms=str(of.get("duration_ms", "0")))
    for name, key in (("bypass_reason", "entry.bypassed"), ("justification", "entry.justified")):
        if of.get(name, ""):
            words = of.text(key, words=words, why=of.get(name))
    return words


def _doubt(of: _Facts) -> str:
    if of.has("reported"):
        return of.text("entry.doubt.reported", call=of.call, code=of.code("reported"))
    return of.text(
        "entry.doubt.asked" if of.has("approvers") else "entry.doubt", call=of.call, who=of.names("approvers")
    )


def _write_trace(of: _Facts) -> str:
    return of.text("entry.trace", call=of.call, line=of.get("line"))


def _write_ending(of: _Facts) -> str:
    return of.text("entry.ending", call=of.call, state=of.code("state"))


def _delivery(of: _Facts) -> str:
    words = f"{of.get('event', 'delivered')} {of.get('approval', '')}".strip()
    if of.has("person") or of.has("room"):
        who = of.get("person", of.get("room"))
        words = of.text("entry.delivery.card", detail=words, who=who, channel=of.get("channel"))
    return words + (f" ({of.get('code')})" if of.get("code", "") else "")


def _message(of: _Facts) -> str:
    return of.text("entry.message.agent" if of.get("by") == "agent" else "entry.message")


def _write_retired(of: _Facts) -> str:
    return of.text("entry.retired", n=str(of.get("records")), signer=of.get("key_id"))


def _act(of: _Facts) -> str:
    more = _join(f"{name} {value}" for name, value in of.facts.items() if name not in ("act", "reason"))
    return f"{of.translate('act', 'entry.no_act')}{f' ({more})' if more else ''}"


def _write_snapshot(of: _Facts) -> str:
    named = ("added", "removed", "changed")
    differs = "; ".join(of.text(f"entry.{each}", names=of.names(each)) for each in named if of.has(each))
    hashed = str(of.facts.get("after"))[:_SHORT]
    words = of.text("entry.standing", act=of.get("act"), where=of.get("where"), n=str(of.get("count")), hash=hashed)
    return f"{words} ({differs})" if differs else words


_KINDS: Final[Mapping[str, Callable[[_Facts], str]]] = {
    "turn": _turn,
    "proposal": _write_proposed,
    "trace": _write_trace,
    "request": _request,
    "revision": _revision,
    "attempt": _attempt,
    "auto": _write_allowed,
    "grant": _write_allowed,
    "verdict": _write_settled,
    "execution": _execution,
    "outcome": _outcome,
    "in_doubt": _doubt,
    "ending": _write_ending,
    "delivery": _delivery,
    "message": _message,
    "admin": _act,
    "policy": _write_snapshot,
    "people": _write_snapshot,
    "retired": _write_retired,
}
