"""Decides by DMARC whether an email comes from the address in its From, never by its claims.

Forwarders and mailing lists break signatures: such an email decides nothing.
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
"""The labels with which the walk continues for a longer name, so that it looks up at most eight names."""

_ONCE: Final = frozenset(
    {
        *("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references"),
        *("mime-version", "content-type", "content-transfer-encoding"),
    }
)
"""Fields that may occur once (RFC 5322). If there were two, a signature could cover one and a reader see the other."""

_By = Literal["provider", "results", "dkim"]


@dataclass(frozen=True)
class ProviderVerdict:
    """The findings of an email provider. They come only from its verified request."""

    dmarc: str
    """The DMARC result; `pass` counts in upper or lower case."""
    spf: str = ""
    envelope_from: str = ""
    """The address of MAIL FROM, which SPF checks."""


@dataclass(frozen=True)
class Authenticity:
    """Whether an email comes from its sender."""

    sender: str
    """The address, in lower case."""
    by: Literal["provider", "results", "dkim", ""]
    """The means that proved it."""
    why: str = ""
    """The missing proof; "" if it is proved."""
    surely: frozenset[str] = frozenset()
    """The header fields, in lower case, that an attacker cannot have changed or moved to another email.

    Only these and the body show the request that the email is about.
    """
    recipients: tuple[str, ...] = ()
    """To and Cc, if they are in `surely`.

    An attacker with an old signed email of the sender can send it to any address again, but cannot change these.
    """


@dataclass(frozen=True)
class AuthenticityEvidence:
    """An email's evidence for its sender: a verdict, or signatures whose keys must be looked up first.

    `names` are the DNS names to look up, empty if no record would change the verdict.
    """

    verdict: Authenticity
    header: MailHeader = field(default_factory=lambda: MailHeader(()))
    head: bytes = b""
    signed: tuple[DkimSignature, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """The claimed sender's domain."""
        return self.verdict.sender.partition("@")[2]

    def judge(self, txt: KnownTxt) -> Authenticity:
        """Return the verdict after the look-up of `names`. Never raises."""
        if not self.signed:
            return self.verdict
        whys = [self._unproven(signature, txt) for signature in self.signed]
        covers = [signature.covers for signature, why in zip(self.signed, whys, strict=True) if not why]
        if not covers:
            return Authenticity(self.verdict.sender, "", whys[0])
        # All these signatures hold, so the sender wrote every field that any of them covers.
        return _authentic(self.header, self.verdict.sender, "dkim", frozenset.union(*covers))

    def _unproven(self, signature: DkimSignature, txt: KnownTxt) -> str:
        above = "" if signature.domain == self.domain else may_not_sign(signature.domain, self.domain, txt)
        return above or holds(self.head, signature, txt)


def authenticate(
    raw: bytes, *, provider: ProviderVerdict | None = None, server: ResultsServer | None = None, dkim: bool = True
) -> AuthenticityEvidence:
    """Judge only by the first given means: the provider's verdict, the Authentication-Results of our own mail `server`,
    or with `dkim` the signatures. Hashes the body and therefore takes a while. Never raises.
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
    # A verdict concerns the From that the server parsed. If that is another domain, it proves nothing here.
    if any(each.value != "pass" or each.properties.get("header.from") != domain for each in dmarc):
        return Authenticity(sender, "", "DMARC did not pass")
    return _judge_passed(
        header, sender, "results", envelope=_envelope([each for each in results if each.method == "spf"])
    )


def _envelope(spf: list[MethodResult]) -> str:
    """Return the domain of MAIL FROM for which SPF passed, "" if any SPF result differs."""
    # Some results are only for HELO. They prove nothing about the sender, unless they failed.
    results = [each for each in spf if "smtp.mailfrom" in each.properties or each.value not in ("pass", "none")]
    domains = {each.properties.get("smtp.mailfrom", "").rpartition("@")[2] for each in results}
    return domains.pop() if len(domains) == 1 and all(each.value == "pass" for each in results) else ""


def _judge_passed(header: MailHeader, sender: str, by: _By, *, envelope: str) -> Authenticity:
    """Return the authenticity of an email whose DMARC passed.

    With SPF for `envelope`, the sender's own server delivered the email. Otherwise only the fields that a signature
    covers are the sender's.
    """
    domain = sender.partition("@")[2]
    # A parent domain may have many owners, such as `co.uk`: another one could replay an old email of the sender.
    if dns_name(envelope.strip("<> ").rpartition("@")[2]) == domain:
        return _authentic(header, sender, by, frozenset(name for name, _ in header.fields))
    # It is unknown which signature passed. An attacker who replays an email can add signatures, but not remove the
    # true one. So only the fields that all of them cover are sure.
    near = [found.covers for found in signatures(header.all("dkim-signature")) if _akin(found.domain, domain)]
    return _authentic(header, sender, by, frozenset.intersection(*near) if near else frozenset())


def _by_dkim(raw: bytes, header: MailHeader, body: bytes, sender: str) -> AuthenticityEvidence:
    domain = sender.partition("@")[2]
    found = signatures(header.all("dkim-signature"))
    aligned = [signature for signature in found if reaches(signature.domain, domain)]
    # Signatures of exactly the sender's domain come first: they need no DMARC record.
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
    """Return whether two names may belong to one organisation. Too wide a guess only removes fields."""
    return domain.split(".")[-2:] == other.split(".")[-2:]


def _authentic(header: MailHeader, sender: str, by: _By, surely: frozenset[str]) -> Authenticity:
    named = (value for name in ("to", "cc") if name in surely for value in header.all(name))
    recipients = tuple(dict.fromkeys(address for value in named for address in mailboxes(value).addresses))
    return Authenticity(sender, by, "", surely, recipients)


@dataclass(frozen=True)
class _Record:
    """A DMARC record and its name."""

    name: str
    tags: dict[str, str]

    @property
    def boundary(self) -> str:
        """`y` for a public suffix's record, `n` for an organisation's, "" if not stated."""
        found = self.tags.get("psd", "")
        return found if found in ("y", "n") else ""


def walked_names(domain: str) -> tuple[str, ...]:
    """Return the names of the DMARC records to look up, from `_dmarc.` and `domain` on; at most eight (RFC 9989, 4.10).

    A parent name may have another owner: `co.uk` and `github.io` are not the organisation of the names below. Only a
    DMARC record proves one.
    """
    labels = domain.split(".")
    names = [labels]
    while len(names[-1]) > 1:
        last = names[-1]
        names.append(last[-_LABELS:] if len(last) > _LABELS else last[1:])
    return tuple(f"_dmarc.{'.'.join(each)}" for each in names)


def may_not_sign(signer: str, domain: str, txt: KnownTxt) -> str:
    """Return why `signer`, a parent name, may not sign email from `domain`, or "".

    It may if a record of the walk shows that both belong to one organisation, and the policy for `domain` does not
    require exactly its own name (`adkim=s`).
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
    """Return the records from `domain` upwards, up to one with a boundary. Raises `LookupError` or `OSError`."""
    path: list[_Record] = []
    for name in walked_names(domain):
        records = [tags for text in txt(name) if (tags := _tags(text))]
        # Several records under one name do not count.
        if len(records) == 1:
            path.append(_Record(name.removeprefix("_dmarc."), records[0]))
            if path[-1].boundary:
                break
    return path


def _organization(domain: str, found: list[_Record]) -> str:
    if not found:
        return domain
    last = found[-1]
    if last.boundary == "y" and last.name != domain:
        below = last.name.count(".") + 2
        return ".".join(domain.split(".")[-below:])
    return last.name


def _tags(text: str) -> dict[str, str]:
    """Parse the tags of a DMARC record in lower case. {} for another text."""
    pairs = [tag.partition("=") for tag in text.split(";")]
    if pairs[0][0].strip().lower() != "v" or pairs[0][2].strip() != "DMARC1":
        return {}
    return {name.strip().lower(): value.strip().lower() for name, _, value in pairs if name.strip()}
