import time

from tables import table

from signoff.plugins.teams.message_text import HTML_CHARS, read_html

QUOTE = '<blockquote itemscope="" itemtype="http://schema.skype.com/Reply" itemid="17">{}</blockquote>'


@table(
    ("content", "text", "about"),
    ("<p>yes</p>", "yes", ""),
    ("<div>a &amp; b<br>c</div>", "a & b\nc", ""),
    ("yes&nbsp;please", "yes please", ""),
    (QUOTE.format("<p>Deny it</p>") + "<p>yes</p>", "yes", "17"),
    (QUOTE.format("<blockquote>a</blockquote>b") + "yes", "yes", "17"),
    (QUOTE.format("a").replace("</blockquote>", ""), "", "17"),
    ("<p>yes <s>please</s></p>", "yes ~please~", ""),
    ("<del>no</del> yes", "~no~ yes", ""),
    ("<blockquote>yes</blockquote>", "> yes", ""),
    ("<code>yes</code>", "`yes`", ""),
    ('<p><img itemtype="http://schema.skype.com/Emoji" alt="👍"></p>', "👍", ""),
    ('<emoji alt="👍"></emoji>', "👍", ""),
    ('yes <img src="x" alt="👍">', "yes []", ""),
    ("a &lt;b&gt; <b", "a <b> <b", ""),
)
def test_html_of_a_message_becomes_its_new_text(content: str, text: str, about: str) -> None:
    read = read_html(content)
    assert (read.text, read.about) == (text, about)


@table(
    "filling", "<a", "<a ", "<!--", "<blockquote>", "&", "<s x='", '<img alt="', "< >", "a", "a ", "a=", "=", "'", " "
)
def test_hostile_html_is_read_in_linear_time(filling: str) -> None:
    many = (filling * HTML_CHARS)[:HTML_CHARS]
    for content in (many, f"<{many}", f"<a {many}", f"<a {many}>"):
        begin = time.process_time()
        read_html(content)
        assert time.process_time() - begin < 1.0
