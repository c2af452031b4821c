"""Walks up the DNS by DMARC (RFC 9989, 4.10): to which organisation a name belongs, and who else may sign for it.

A name above may be anybody's: `co.uk` and `github.io` are no organisation of those below. That it is one is only
believed of a DMARC record that says so.
"""

from dataclasses import dataclass
from typing import Final

from signoff.channels.mail.authentication.dns_names import KnownTxt

_LABELS: Final = 7
"""Of a longer name, the walk goes on with so many of its labels, so that it asks for eight names at most."""


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
    """Returns the names whose DMARC records are asked for, beginning with `_dmarc.` and `domain`; at most eight."""
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
