"""Renders the Markdown of a preview without links, images and HTML."""

from typing import Final

from markdown_it import MarkdownIt
from markupsafe import Markup

from signoff.approvals.previews.lines import PreviewLine

# An entity could name a hidden character, and an underlined line could be the heading of another paragraph.
_LEFT_OUT: Final = ("link", "image", "autolink", "reference", "html_block", "html_inline", "entity", "lheading")
_HEADINGS: Final = {"h1": "h4", "h2": "h5", "h3": "h6", "h4": "h6", "h5": "h6"}
"""The page and the part have the headings above."""
_PARSER: Final = MarkdownIt("commonmark", {"html": False}).disable(list(_LEFT_OUT))


def render_markdown(lines: tuple[PreviewLine, ...]) -> Markup:
    """`lines` have no hidden characters."""
    tokens = _PARSER.parse("\n".join(line.text for line in lines))
    for token in tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))
