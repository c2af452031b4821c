"""Writes ends of requests and effects of decisions in sentences."""

from datetime import datetime
from typing import Final

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.approvals.request_state import ENDINGS
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.formats.visible_text import MISSING, one_line
from signoff.languages.catalogue import has_text, text
from signoff.languages.remarks import remark_text
from signoff.texts.formatter import Formatter

REASON_CHARS: Final = 300
_ACCEPTED: Final = {"cancelled": "withdrawn"}
_READ_ON: Final = frozenset(("stale", "assurance", "malformed", "unavailable", "already_decided"))


def where_words(channel: str, language: str) -> str:
    """Write the channel of a decision: `by e-mail`."""
    key = f"where.{channel}"
    if has_text(key):
        return text(key, language)
    return text("where.other", language, channel=one_line(channel, NAME_CHARS).text)


def closing_words(request: ApprovalRequest, formatter: Formatter) -> str:
    """Write the end of a request in one sentence without a period: `Approved by Ana by e-mail, 14:02 UTC`.

    A pending request has a newer revision: the text is for a card of an older one.
    """
    state = "replaced" if request.state == "pending" else request.state
    doubt = request.kind == "in_doubt"
    who = request.decided_name or request.decided_by
    return _write_end(state, who, request.decided_channel, request.decided_at, formatter, doubt=doubt)


def assignment_words(request: ApprovalRequest, language: str) -> tuple[str, ...]:
    """Write each hand-on and each added approver in a sentence: `Ana handed it on to Rui.`"""
    return tuple(
        text(
            f"card.{each.verdict}",
            language,
            who=one_line(each.name or each.subject, NAME_CHARS).text,
            to=one_line(each.decision.to_name or each.decision.to, NAME_CHARS).text,
        )
        for each in request.assignments
    )


def reason_words(request: ApprovalRequest, language: str) -> str:
    """A person's reason stays unchanged, one of the engine's is in `language`."""
    # A person who withdraws may use exactly the engine's words: they are still the person's.
    if request.state != "cancelled" or request.decided_by or request.reason != ENDINGS.get(request.ended_as or ""):
        return request.reason
    return text(f"ended_as.{request.ended_as}", language)


def undeclared_words(request: ApprovalRequest, language: str) -> str:
    """Return "" if the request's tool is in the catalog."""
    return text("card.undeclared", language, tool=request.tool) if request.undeclared else ""


def late_report_words(request: ApprovalRequest, formatter: Formatter) -> str:
    """Return "" without a late report."""
    report = request.late_report
    return "" if report is None else formatter.text(f"card.late.{report.code}", when=formatter.time(report.at))


def receipt_words(receipt: Receipt, formatter: Formatter, link: str = "", *, code: str = "") -> str:
    """Add the request's code, and the link if the page has more than this line."""
    sentences = [_receipt(receipt, formatter)]
    if link and receipt.code in _READ_ON:
        sentences.append(text("reply.see", formatter.language, link=link))
    return (f"{show_code(code)}: " if code else "") + " ".join(sentences)


def written_receipt(receipt: Receipt, formatter: Formatter) -> Receipt:
    """Use the formatter's language unless a developer wrote the text."""
    if receipt.remarks:
        return replace(receipt, message=remark_text(receipt.remarks, formatter.language))
    return receipt if receipt.message else replace(receipt, message=receipt_words(receipt, formatter))


def _write_end(state: str, who: str, channel: str, at: datetime | None, formatter: Formatter, *, doubt: bool) -> str:
    named = ", ".join(one_line(each, NAME_CHARS).text for each in who.split(", "))
    key = f"end.doubt.{state}" if doubt and has_text(f"end.doubt.{state}") else f"end.{state}"
    if state == "cancelled" and named and at is not None:
        key = "end.cancelled_by"
    values = {
        "who": named or text("end.somebody", formatter.language),
        "where": where_words(channel, formatter.language),
        "when": formatter.time(at) if at is not None else MISSING,
    }
    return text(key, formatter.language, **values)


def _receipt(receipt: Receipt, formatter: Formatter) -> str:
    language = formatter.language
    if receipt.status == "accepted":
        taken = _ACCEPTED.get(receipt.state, receipt.verdict or receipt.state)
        key = f"receipt.accepted.{taken}"
        return text(key if has_text(key) else "receipt.pending", language)
    if receipt.status == "counted":
        words = formatter.text("receipt.counted", n=receipt.votes, of=receipt.needed)
        return f"{words} {formatter.open(receipt.open)}".rstrip()
    if receipt.status == "pending":
        return text("receipt.pending", language)
    ended = has_text(f"end.{receipt.verdict or receipt.state}")
    if receipt.why in ("undo_late", "undo_other"):
        return text("note.not_undone", language, why=_why(receipt, language))
    if receipt.code == "already_decided" and receipt.why != "begun" and ended:
        return text("receipt.already_decided", language, ending=_write_decided(receipt, formatter))
    # The reason may quote names and rules of other authors, so mark it among our own sentences.
    why = _why(receipt, language)
    if receipt.why or (receipt.code in ("not_allowed", "already_decided") and why):
        return text("note.refused", language, why=why)
    # The end is unknown if an ended turn cannot be read, or if a turn claims an end that it does not have.
    code = "unavailable" if receipt.code == "already_decided" else receipt.code or "malformed"
    return text(f"receipt.{code}", language, why=why)


def _why(receipt: Receipt, language: str) -> str:
    if receipt.why:
        return text(f"why.{receipt.why}", language)
    return one_line(remark_text(receipt.remarks or receipt.message, language), REASON_CHARS).text


def _write_decided(receipt: Receipt, formatter: Formatter) -> str:
    at, channel = receipt.decided_at, receipt.channel
    who = receipt.decided_name or receipt.decided_by
    ending = _write_end(receipt.verdict or receipt.state, who, channel, at, formatter, doubt=False)
    if not receipt.reason:
        return ending
    # The reason belongs to the earlier decision, so it precedes the sentence about the later one.
    why = text("end.reason", formatter.language, reason=one_line(receipt.reason, REASON_CHARS).text)
    return f"{ending}. {why.removesuffix('.')}"
