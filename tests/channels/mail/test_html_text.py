from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

from signoff.channels.answer_text.quotes import CUT, SIGNED
from signoff.channels.mail.html_text import html_lines


def seen(html: str) -> list[str]:
    return [line for line in html_lines(html) if line not in ("", "> ")]


@table(
    ("html", "lines"),
    ("Yes", ["Yes"]),
    ("<p>Yes</p><p>Soon</p>", ["Yes", "Soon"]),
    ("Yes<br>Soon<BR/>Now", ["Yes", "Soon", "Now"]),
    ("<DIV>Yes<div>Soon</div>Now</DIV>", ["Yes", "Soon", "Now"]),
    ("<p>Y<b>e</b>s,\n  please</p>", ["Yes, please"]),
    ("<p>Yes<p>Soon", ["Yes", "Soon"]),
    ("<table><tr><td>Yes<td>Soon</table>", ["Yes", "Soon"]),
    ("<ul><li>Yes<li>Soon</ul>", ["Yes", "Soon"]),
    ("<pre>Yes\nSoon</pre>Now\nthen", ["Yes", "Soon", "Now then"]),
    ("a &lt; b &amp; c&nbsp;d &#39;e&#x27; &unknown; & f", ["a < b & c d 'e' &unknown; & f"]),
    ("1 < 2 <3 <- x", ["1 < 2 <3 <- x"]),
    ('<a title="a > b" href=x>Yes</a>', ["Yes"]),
    ("<a title='a > b'>Yes</a>", ["Yes"]),
    ('<a title=">Yes', ["Yes"]),
    ("<a b='\">Yes", ["Yes"]),
    ("Yes<!-- No -->, please<!doctype html><?xml ?>", ["Yes, please"]),
    ("Yes<!-- No", ["Yes"]),
    ("Yes<a title=x", ["Yes"]),
    ("Yes</ nothing>, please</>", ["Yes, please"]),
    ("<script>if (a < b) '</p>'</script>Yes<STYLE>p</STYLE >", ["Yes"]),
    ('<script>x<y title="</script>Yes', ["Yes"]),
    ("<head><title>No</title></head><body>Yes</body>", ["Yes"]),
    ('<span style="DISPLAY : none">No</span>Yes', ["Yes"]),
    ('<span style="mso-hide:all">No</span>Yes', ["Yes"]),
    ("Yes</b></p></div>", ["Yes"]),
    ("<x-y z>Yes</x-y>", ["Yes"]),
    ("&#0;&#13;Yes\u200b", ["\ufffd Yes\u200b"]),
    ("", []),
)
def test_html_is_read_as_displayed(html: str, lines: list[str]) -> None:
    assert seen(html) == lines


@table(
    ("html", "lines"),
    ("Yes<blockquote>Pay<br>No</blockquote>Soon", ["Yes", "> Pay", "> No", "Soon"]),
    ("<blockquote><blockquote>a</blockquote>b</blockquote>Yes", ["> a", "> b", "Yes"]),
    ("<div class='x gmail_attr'>On Sun:</div>Yes", ["> On Sun:", "Yes"]),
    ('<div class=gmail_quote>On Sun:<blockquote class="gmail_quote">Pay</blockquote>Yes</div>Now', None),
    ('<div class="gmail_quote">---- Forwarded<p>Pay</div>Yes', ["> ---- Forwarded", "> Pay", "Yes"]),
    ('Yes<div id="yahoo_quoted_7" class="yahoo_quoted">Pay</div>', ["Yes", "> Pay"]),
    ('Yes<div class="moz-cite-prefix">On Sun:</div>', ["Yes", "> On Sun:"]),
    ('Yes<div class="gmail_signature">Ana</div>', ["Yes", f"{SIGNED}Ana"]),
    ('Yes<div id="Signature">Ana</div>', ["Yes", f"{SIGNED}Ana"]),
    ('Yes<div id="divRplyFwdMsg">From: A</div>Pay', ["Yes", CUT, "From: A", "Pay"]),
    ('Yes<div id="appendonsend"></div>Pay', ["Yes", CUT, "Pay"]),
    ('Yes<div style="border-top: solid #B5C4DF 1.0pt; padding: 3.0pt 0in 0in 0in">Pay</div>', ["Yes", CUT, "Pay"]),
    ('Yes<div style="border-top:solid red 1px">Pay</div>', ["Yes", "Pay"]),
)
def test_quotes_and_signatures_of_clients_are_marked(html: str, lines: list[str] | None) -> None:
    assert seen(html) == (lines or ["> On Sun:", "> Pay", "Yes", "Now"])


PIECES = """<|>|/|=|"|'|<p>|</p>|<br>|<blockquote>|</blockquote>|<div |<!--|-->|<script>|</script>|<pre>|</pre>|&lt;
|<div class='gmail_quote'>|</div>| |Yes|&#|class=gmail_attr|</|<td|<head>|<textarea>"""


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES.split("|")), max_size=40).map("".join) | st.text(max_size=60))
def test_arbitrary_text_is_read_as_html(html: str) -> None:
    assert not any("\n" in line for line in html_lines(html))


@table(
    "sheet",
    ".x { text-decoration: line-through }",
    "p span.x, b { color: red; Text-Decoration-Line: LINE-THROUGH }",
    "@media screen { .x { text-decoration: underline line-through } }",
    "#y { text-decoration: line-through; }",
    "span { text-decoration: line-through }",
    "* { text-decoration: line-through }",
    "[class] { text-decoration: line-through }",
)
def test_text_struck_through_by_a_style_sheet_is_marked(sheet: str) -> None:
    document = f"<html><head><style type='text/css'>.z {{ color: red }} {sheet}</style></head><body>"
    lines = html_lines(f"{document}<p>Approve <span class='a X' id='y'>only half</span></p></body></html>")
    assert "~only half~" in "".join(lines)


def test_text_of_a_class_without_strikethrough_is_not_marked() -> None:
    document = "<style>.x { text-decoration: line-through } .y { text-decoration: underline }</style>"
    assert html_lines(f"{document}<p class='y'>Approve</p>") == ["Approve", ""]
