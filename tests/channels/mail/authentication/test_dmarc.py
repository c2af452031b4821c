from tables import table

from signoff.channels.mail.authentication.authenticity import may_not_sign, walked_names
from signoff.channels.mail.authentication.dns_names import txt_lookup_of

ELSEWHERE = "the domain that signs is of another organisation"
NONE = "the sender's domain has no DMARC record that lets a domain above sign"


def test_dmarc_walk_takes_at_most_eight_steps() -> None:
    assert walked_names("a.mail.example.com") == (
        "_dmarc.a.mail.example.com",
        "_dmarc.mail.example.com",
        "_dmarc.example.com",
        "_dmarc.com",
    )
    long = walked_names("a.b.c.d.e.f.g.h.i.j.mail.example.com")
    assert len(long) == 8
    assert long[:2] == ("_dmarc.a.b.c.d.e.f.g.h.i.j.mail.example.com", "_dmarc.g.h.i.j.mail.example.com")
    assert len(walked_names("a.b.c.d.e.f.g.h")) == 8


@table(
    ("records", "why"),
    ({}, NONE),
    ({"b.example.com": ["v=DMARC1; p=none"]}, ""),
    ({"com": ["v=DMARC1; p=none; psd=y"]}, ""),
    ({"example.com": ["v=DMARC1; p=none"]}, ""),
    ({"b.example.com": ["v=DMARC1; psd=y"]}, ELSEWHERE),
    ({"b.example.com": ["v=DMARC1; psd=u"]}, ""),
    ({"b.example.com": ["v=DMARC1; psd=n"]}, ""),
    ({"a.b.example.com": ["v=DMARC1; psd=n"], "b.example.com": ["v=DMARC1"]}, ELSEWHERE),
    ({"b.example.com": ["v=DMARC1", "v=DMARC1"]}, NONE),
    ({"b.example.com": ["v=DMARC2", "x", "v=spf1", " v = DMARC1 ; p=none"]}, ""),
    ({"b.example.com": ["p=none; v=DMARC1"]}, NONE),
    ({"b.example.com": ["v=DMARC1; adkim = S"]}, "the sender's domain must sign itself"),
    ({"a.b.example.com": ["v=DMARC1; adkim=r"], "b.example.com": ["v=DMARC1; adkim=s"]}, ""),
    ({"example.com": ["v=DMARC1; adkim=s"]}, "the sender's domain must sign itself"),
    ({"com": ["v=DMARC1; psd=y; adkim=s"]}, "the sender's domain must sign itself"),
)
def test_parent_domain_signs_only_if_its_record_allows_it(records: dict[str, list[str]], why: str) -> None:
    found = {name: list[str]() for name in walked_names("a.b.example.com")}
    found |= {f"_dmarc.{name}": texts for name, texts in records.items()}
    assert may_not_sign("b.example.com", "a.b.example.com", txt_lookup_of(found)) == why


def test_failed_lookup_ends_the_walk() -> None:
    found = {"_dmarc.a.b.example.com": list[str](), "_dmarc.b.example.com": ["v=DMARC1"], "_dmarc.example.com": None}
    result = may_not_sign("b.example.com", "a.b.example.com", txt_lookup_of(found))
    assert result == "the sender's DMARC record cannot be looked up now"
