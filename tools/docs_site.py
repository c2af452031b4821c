"""MkDocs' hooks: add the pages at the top of the repository, and resolve links to files outside the site."""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).resolve().parents[1]
_TOP_PAGES: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    for name, page in _TOP_PAGES.items():
        files.append(File.generated(config, page, content=(_ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace a link to a file outside the site by its text. Raises `PluginError` for a link to a missing file."""
    source = next((name for name, uri in _TOP_PAGES.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda match: _resolved(match, (_ROOT / source).parent, page.file.src_uri), markdown)


def _resolved(match: re.Match[str], folder: Path, page: str) -> str:
    if re.match(r"[a-z]+:", match["target"]):
        return match[0]
    target = (folder / match["target"]).resolve()
    if not target.exists():
        raise PluginError(f"{page} links to {match['target']}, which does not exist")
    path = target.relative_to(_ROOT).as_posix()
    site = _TOP_PAGES.get(path) or path.removeprefix("docs/")
    if site == path or site.startswith("internal/"):
        return match["text"]
    return f"{match['image']}[{match['text']}]({site}{match['anchor'] or ''})"
