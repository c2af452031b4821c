"""Whether a mail comes from whom its From names: DMARC, by one of three means, and never by what the mail says itself.

A forwarder and a mailing list break signatures; such a mail decides nothing, however well it is meant.
"""

from dataclasses import dataclass
from typing import Final, Literal

from signoff.channels.base import Malformed
from signoff.channels.mail_dkim import MAX_TRIED, Signature, holds, signatures
from signoff.channels.mail_fields import Header, mailboxes, only_sender, split_mail
from signoff.channels.mail_names import TxtLookup, dns_name, reaches, sparing
from signoff.channels.mail_results import parse_results

_ONCE: Final = frozenset(
    {
        *("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references"),
        *("mime-version", "content-type", "content-transfer-encoding"),
    }
)
"""Fields of which a mail has one at most (RFC 5322): of two, a signature covers one and a reader sees the other."""

_MAX_LABELS: Final = 8
"""Of a domain for which one above signs: each is a name to be looked up."""


@dataclass(frozen=True)
class ProviderVerdict:
    """What a mail provider found, in its own words: `pass` in any case is one. Only from a verified request of it.

    `envelope_from` is the address of MAIL FROM, which SPF is about.
    """

    dmarc: str
    spf: str = ""
    envelope_from: str = ""


@dataclass(frozen=True)
class Authenticity:
    """Whether `sender`, in lower case, sent the mail; `why` says what is missing, and is empty if he did.

    `surely` names the header fields, in lower case, that nobody can have changed or lent to another mail: only by
    them, and the body, may one say what the mail is about. `recipients` are To and Cc where those are among them.
    Who has an old signed mail of the sender can send it again to any address, but cannot change these.
    """

    sender: str
    by: Literal["provider", "results", "dkim", ""]
    why: str = ""
    surely: frozenset[str] = frozenset()
    recipients: tuple[str, ...] = ()


def authenticate(
    raw: bytes, *, provider: ProviderVerdict | None = None, authserv_id: str = "", txt: TxtLookup | None = None
) -> Authenticity:
    """Judge by the first means that is given, and by it alone: the provider's verdict, the one
    Authentication-Results of `authserv_id`, or DKIM checked here with keys found by `txt`. Never raises.

    Our mail server must take out of what comes in every Authentication-Results that bears our `authserv_id`.
    """
    try:
        header, _ = split_mail(raw)
    except Malformed as error:
        return Authenticity("", "", error.message)
    sender, unclear = only_sender(header)
    if unclear:
        return Authenticity("", "", unclear)
    twice = next((name for name in sorted(_ONCE) if len(header.all(name)) > 1), "")
    if twice:
        return Authenticity(sender, "", f"several fields `{twice}`")
    if provider is not None:
        return _by_provider(header, sender, provider)
    if authserv_id:
        return _by_results(header, sender, authserv_id)
    if txt is not None:
        return _by_dkim(raw, header, sender, sparing(txt))
    return Authenticity(sender, "", "nothing is set up that proves who sends")


def _by_provider(header: Header, sender: str, verdict: ProviderVerdict) -> Authenticity:
    if verdict.dmarc.strip().lower() != "pass":
        return Authenticity(sender, "", "DMARC did not pass")
    return _passed(header, sender, "provider", spf=verdict.spf, envelope=verdict.envelope_from)


def _by_results(header: Header, sender: str, authserv_id: str) -> Authenticity:
    fields = map(parse_results, header.all("authentication-results"))
    own = [field for field in fields if field.authserv_id == authserv_id.lower()]
    if not own:
        return Authenticity(sender, "", "our mail server has not said whether DMARC passed")
    if len(own) > 1:
        # One of them came with the mail, and not every server writes its own above it.
        return Authenticity(sender, "", "several Authentication-Results bear our mail server's name")
    [ours] = own
    dmarc = ours.of("dmarc")
    domain = sender.partition("@")[2]
    # A verdict is about the From that the server read; of another domain it says nothing about the one read here.
    if len(dmarc) != 1 or dmarc[0].value != "pass" or dmarc[0].properties.get("header.from") != domain:
        return Authenticity(sender, "", "DMARC did not pass")
    # SPF may be told of MAIL FROM and of HELO: of two results that passed it is open which one DMARC went by.
    passed = [result for result in ours.of("spf") if result.value == "pass"]
    envelope = passed[0].properties.get("smtp.mailfrom", "") if len(passed) == 1 else ""
    return _passed(header, sender, "results", spf="pass" if envelope else "", envelope=envelope)


def _passed(
    header: Header, sender: str, by: Literal["provider", "results"], *, spf: str, envelope: str
) -> Authenticity:
    """DMARC passed. By SPF, the sender's own server brought the mail; else only what a signature covers is theirs."""
    domain = sender.partition("@")[2]
    brought_by = dns_name(envelope.strip("<> ").rpartition("@")[2])
    if spf.strip().lower() == "pass" and reaches(brought_by, domain):
        return _authentic(header, sender, by, frozenset(name for name, _ in header.fields))
    # Which signature passed is not known. Who sends an old mail again can add to them, not take the true one out.
    near = [found.covers for found in signatures(header.all("dkim-signature")) if _akin(found.domain, domain)]
    return _authentic(header, sender, by, frozenset.intersection(*near) if near else frozenset())


def _by_dkim(raw: bytes, header: Header, sender: str, txt: TxtLookup) -> Authenticity:
    domain = sender.partition("@")[2]
    found = signatures(header.all("dkim-signature"))
    aligned = [signature for signature in found if reaches(signature.domain, domain)]
    whys = [_unproven(raw, signature, domain, txt) for signature in aligned[:MAX_TRIED]]
    covers = [signature.covers for signature, why in zip(aligned, whys, strict=False) if not why]
    if not covers:
        return Authenticity(sender, "", whys[0] if whys else "no signature of the sender's domain")
    # All of these hold, so what any of them covers is the sender's own.
    return _authentic(header, sender, "dkim", frozenset.union(*covers))


def _unproven(raw: bytes, signature: Signature, domain: str, txt: TxtLookup) -> str:
    """Why `signature` does not prove that `domain` sent the mail; nothing if it does."""
    aligned = "" if signature.domain == domain else _strict(domain, signature.domain, txt)
    return aligned or holds(raw, signature, txt)


def _strict(domain: str, signer: str, txt: TxtLookup) -> str:
    """Why a domain above may not sign for `domain`: its DMARC record, or the next above, asks for the very same."""
    if domain.count(".") >= _MAX_LABELS:
        return "the sender's domain has too many labels"
    at = domain
    while reaches(signer, at):
        try:
            records = [record for record in txt(f"_dmarc.{at}") if record.lower().startswith("v=dmarc1")]
        except (LookupError, OSError):
            return "the sender's DMARC record cannot be looked up now"
        if records:
            # Of several records DMARC takes none; here one that is strict is enough to refuse.
            tags = [tag.replace(" ", "").lower() for record in records for tag in record.split(";")]
            return "the sender's domain must sign itself" if "adkim=s" in tags else ""
        at = at.partition(".")[2]
    return ""


def _akin(domain: str, other: str) -> bool:
    """Whether two names may be of one organisation; taken too widely here, it only takes fields away."""
    return domain.split(".")[-2:] == other.split(".")[-2:]


def _authentic(
    header: Header, sender: str, by: Literal["provider", "results", "dkim"], surely: frozenset[str]
) -> Authenticity:
    named = (value for name in ("to", "cc") if name in surely for value in header.all(name))
    recipients = tuple(dict.fromkeys(address for value in named for address in mailboxes(value).addresses))
    return Authenticity(sender, by, "", surely, recipients)
