"""Decides whether a mail comes from the address in its From: DMARC, by one of three means, never by what the mail
claims.

A forwarder and a mailing list break signatures; such a mail decides nothing, however well it is meant.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from signoff.channels.channel_errors import Malformed
from signoff.channels.mail.authentication.authentication_results import MethodResult, ResultsServer
from signoff.channels.mail.authentication.body_hash import BodyHashes
from signoff.channels.mail.authentication.dkim_signature import DkimSignature, flaw, holds, signatures
from signoff.channels.mail.authentication.dns_names import KnownTxt, dns_name, reaches
from signoff.channels.mail.header import MailHeader, mailboxes, only_sender, split_mail
from signoff.contracts.limits import MAIL_SIGNATURES_TRIED

_LABELS: Final = 7
"""Of a longer name, the walk goes on with so many of its labels, so that it asks for eight names at most."""

_ONCE: Final = frozenset(
    {
        *("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references"),
        *("mime-version", "content-type", "content-transfer-encoding"),
    }
)
"""Fields of which a mail has one at most (RFC 5322): of two, a signature covers one and a reader sees the other."""

_By = Literal["provider", "results", "dkim"]


@dataclass(frozen=True)
class ProviderVerdict:
    """A mail provider's findings, only from a verified request of the provider."""

    dmarc: str
    """Its result of DMARC; `pass` in any case is one."""
    spf: str = ""
    """Its result of SPF."""
    envelope_from: str = ""
    """The address of MAIL FROM, which SPF is about."""


@dataclass(frozen=True)
class Authenticity:
    """Whether a mail comes from its sender."""

    sender: str
    """The address, in lower case."""
    by: Literal["provider", "results", "dkim", ""]
    """Which means proved it."""
    why: str = ""
    """What is missing; "" if it is proved."""
    surely: frozenset[str] = frozenset()
    """The header fields, in lower case, that nobody can have changed or moved to another mail.

    Only by them, and the body, is known what the mail is about.
    """
    recipients: tuple[str, ...] = ()
    """To and Cc, where those are among `surely`.

    Who has an old signed mail of the sender can send it again to any address, but cannot change these.
    """


@dataclass(frozen=True)
class AuthenticityEvidence:
    """What a mail holds for its sender: a verdict, or signatures whose keys have to be looked up first.

    `names` are all that the DNS has to be asked for, none where nothing there would change the verdict.
    """

    verdict: Authenticity
    header: MailHeader = field(default_factory=lambda: MailHeader(()))
    head: bytes = b""
    signed: tuple[DkimSignature, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """The sender's, as he claims it."""
        return self.verdict.sender.partition("@")[2]

    def judge(self, txt: KnownTxt) -> Authenticity:
        """Returns the verdict, now that `names` are looked up. Never raises."""
        if not self.signed:
            return self.verdict
        whys = [self._unproven(signature, txt) for signature in self.signed]
        covers = [signature.covers for signature, why in zip(self.signed, whys, strict=True) if not why]
        if not covers:
            return Authenticity(self.verdict.sender, "", whys[0])
        # All of these hold, so what any of them covers is the sender's own.
        return _authentic(self.header, self.verdict.sender, "dkim", frozenset.union(*covers))

    def _unproven(self, signature: DkimSignature, txt: KnownTxt) -> str:
        """Returns why `signature` does not prove that the sender's domain sent the mail; nothing if it does."""
        above = "" if signature.domain == self.domain else may_not_sign(signature.domain, self.domain, txt)
        return above or holds(self.head, signature, txt)


def authenticate(
    raw: bytes, *, provider: ProviderVerdict | None = None, server: ResultsServer | None = None, dkim: bool = True
) -> AuthenticityEvidence:
    """Judges by the first means that is given, and by it alone: the provider's verdict, the Authentication-Results of
    our own mail `server`, or with `dkim` the signatures. Hashes the body, and so takes a while. Never raises.
    """
    try:
        header, body = split_mail(raw)
    except Malformed as error:
        return AuthenticityEvidence(Authenticity("", "", error.message))
    sender, unclear = only_sender(header)
    if unclear:
        return AuthenticityEvidence(Authenticity("", "", unclear))
    twice = next((name for name in sorted(_ONCE) if len(header.all(name)) > 1), "")
    if twice:
        return AuthenticityEvidence(Authenticity(sender, "", f"several fields `{twice}`"))
    if provider is not None:
        return AuthenticityEvidence(_by_provider(header, sender, provider), header)
    if server is not None:
        return AuthenticityEvidence(_by_results(header, sender, server), header)
    if dkim:
        return _by_dkim(raw, header, body, sender)
    return AuthenticityEvidence(Authenticity(sender, "", "nothing is set up that proves who sends"))


def _by_provider(header: MailHeader, sender: str, verdict: ProviderVerdict) -> Authenticity:
    if verdict.dmarc.strip().lower() != "pass":
        return Authenticity(sender, "", "DMARC did not pass")
    spf = verdict.envelope_from if verdict.spf.strip().lower() == "pass" else ""
    return _judge_passed(header, sender, "provider", envelope=spf)


def _by_results(header: MailHeader, sender: str, server: ResultsServer) -> Authenticity:
    results = server.results(header)
    if results is None:
        return Authenticity(sender, "", "no `Received` of our mail server is in the mail")
    dmarc = [result for result in results if result.method == "dmarc"]
    if not dmarc:
        return Authenticity(sender, "", "our mail server has not said whether DMARC passed")
    domain = sender.partition("@")[2]
    # A verdict is about the From that the server read; of another domain it says nothing about the one read here.
    if any(each.value != "pass" or each.properties.get("header.from") != domain for each in dmarc):
        return Authenticity(sender, "", "DMARC did not pass")
    return _judge_passed(
        header, sender, "results", envelope=_envelope([each for each in results if each.method == "spf"])
    )


def _envelope(spf: list[MethodResult]) -> str:
    """Returns the domain of MAIL FROM for which SPF passed; "" where any result of SPF differs."""
    # Of HELO alone it is told too. That says nothing of who sends, except where it failed.
    results = [each for each in spf if "smtp.mailfrom" in each.properties or each.value not in ("pass", "none")]
    domains = {each.properties.get("smtp.mailfrom", "").rpartition("@")[2] for each in results}
    return domains.pop() if len(domains) == 1 and all(each.value == "pass" for each in results) else ""


def _judge_passed(header: MailHeader, sender: str, by: _By, *, envelope: str) -> Authenticity:
    """Returns the authenticity of a mail whose DMARC passed. By SPF for `envelope`, the sender's own server brought the
    mail; else only what a signature covers is theirs.
    """
    domain = sender.partition("@")[2]
    # A domain above may be anybody's, such as `co.uk`, and who has an old mail of the sender's could bring it again.
    if dns_name(envelope.strip("<> ").rpartition("@")[2]) == domain:
        return _authentic(header, sender, by, frozenset(name for name, _ in header.fields))
    # Which signature passed is not known. Who sends an old mail again can add to them, not take the true one out.
    near = [found.covers for found in signatures(header.all("dkim-signature")) if _akin(found.domain, domain)]
    return _authentic(header, sender, by, frozenset.intersection(*near) if near else frozenset())


def _by_dkim(raw: bytes, header: MailHeader, body: bytes, sender: str) -> AuthenticityEvidence:
    domain = sender.partition("@")[2]
    found = signatures(header.all("dkim-signature"))
    aligned = [signature for signature in found if reaches(signature.domain, domain)]
    # The sender's very own first, for which no record of DMARC is asked.
    tried = sorted(aligned, key=lambda signature: signature.domain != domain)[:MAIL_SIGNATURES_TRIED]
    hashes = BodyHashes(body)
    flaws = [flaw(signature, hashes) for signature in tried]
    signed = tuple(signature for signature, why in zip(tried, flaws, strict=True) if not why)
    if not signed:
        return AuthenticityEvidence(
            Authenticity(sender, "", flaws[0] if flaws else "no signature of the sender's domain")
        )
    keys = [signature.key_name for signature in signed]
    walk = walked_names(domain) if any(signature.domain != domain for signature in signed) else ()
    head = raw.replace(b"\r\n", b"\n").partition(b"\n\n")[0].replace(b"\n", b"\r\n")
    verdict = Authenticity(sender, "", "the keys of its signatures are not looked up")
    return AuthenticityEvidence(verdict, header, head, signed, tuple(dict.fromkeys((*keys, *walk))))


def _akin(domain: str, other: str) -> bool:
    """Returns whether two names may be of one organisation; too wide a guess only removes fields."""
    return domain.split(".")[-2:] == other.split(".")[-2:]


def _authentic(header: MailHeader, sender: str, by: _By, surely: frozenset[str]) -> Authenticity:
    named = (value for name in ("to", "cc") if name in surely for value in header.all(name))
    recipients = tuple(dict.fromkeys(address for value in named for address in mailboxes(value).addresses))
    return Authenticity(sender, by, "", surely, recipients)


@dataclass(frozen=True)
class _Record:
    """A DMARC record, and the name it is about."""

    name: str
    tags: dict[str, str]

    @property
    def boundary(self) -> str:
        """Returns `y` for a public suffix's record, `n` for an organisation's, "" where it does not say."""
        found = self.tags.get("psd", "")
        return found if found in ("y", "n") else ""


def walked_names(domain: str) -> tuple[str, ...]:
    """Returns the names whose DMARC records are asked for, beginning with `_dmarc.` and `domain`; at most eight.

    This is the walk of DMARC (RFC 9989, 4.10). A name above may be anybody's: `co.uk` and `github.io` are not the
    organisation of the names below. Only a DMARC record proves one.
    """
    labels = domain.split(".")
    names = [labels]
    while len(names[-1]) > 1:
        last = names[-1]
        names.append(last[-_LABELS:] if len(last) > _LABELS else last[1:])
    return tuple(f"_dmarc.{'.'.join(each)}" for each in names)


def may_not_sign(signer: str, domain: str, txt: KnownTxt) -> str:
    """Returns why `signer`, a name above, may not sign mail from `domain`; "" if it may.

    It may where both are of one organisation by a record that the walk finds, and the policy for `domain` does not ask
    for its very own name (`adkim=s`).
    """
    try:
        found, signers = _walk(domain, txt), _walk(signer, txt)
    except (LookupError, OSError):
        return "the sender's DMARC record cannot be looked up now"
    if not found:
        return "the sender's domain has no DMARC record that lets a domain above sign"
    if _organization(domain, found) != _organization(signer, signers):
        return "the domain that signs is of another organisation"
    policy = next((record for record in found if record.name == domain), None)
    policy = policy or next((record for record in found if record.name == _organization(domain, found)), found[-1])
    return "the sender's domain must sign itself" if policy.tags.get("adkim") == "s" else ""


def _walk(domain: str, txt: KnownTxt) -> list[_Record]:
    """Returns the records from `domain` upwards, up to one that marks a boundary. Raises `LookupError` or `OSError`."""
    found: list[_Record] = []
    for name in walked_names(domain):
        records = [tags for text in txt(name) if (tags := _tags(text))]
        # Of several records none counts.
        if len(records) == 1:
            found.append(_Record(name.removeprefix("_dmarc."), records[0]))
            if found[-1].boundary:
                break
    return found


def _organization(domain: str, found: list[_Record]) -> str:
    if not found:
        return domain
    last = found[-1]
    if last.boundary == "y" and last.name != domain:
        below = last.name.count(".") + 2
        return ".".join(domain.split(".")[-below:])
    return last.name


def _tags(text: str) -> dict[str, str]:
    """Parses the tags of a DMARC record in lower case; {} of another text."""
    pairs = [tag.partition("=") for tag in text.split(";")]
    if pairs[0][0].strip().lower() != "v" or pairs[0][2].strip() != "DMARC1":
        return {}
    return {name.strip().lower(): value.strip().lower() for name, _, value in pairs if name.strip()}
