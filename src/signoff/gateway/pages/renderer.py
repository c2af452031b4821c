"""Renders pages from templates. Escapes all values and takes texts from the catalogue."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from signoff.contracts.ids import show_code
from signoff.gateway.auth.person_lookup import active_people, display_name
from signoff.gateway.auth.visitor import Browser, Visitor, Visitors
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.freeze_service import operates
from signoff.gateway.read_access import reads_record
from signoff.languages.catalogue import ENGLISH, has_text, languages, text

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
PUSH: Final = "push"
"""The kind of the channel whose notifications people switch on in the inbox."""
_QUOTED: Final = re.compile("`([^`]+)`")
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals.update(has_text=has_text, show_code=show_code)
_TEMPLATES.filters["path"] = lambda value: quote(str(value), safe="")
_TEMPLATES.filters["code"] = lambda words: Markup(_QUOTED.sub(r"<code>\1</code>", str(escape(words))))


class PageRenderer:
    """Renders templates for visitors."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors) -> None:
        self._deps = deps
        self._visitors = visitors
        self._notifies = any(each.kind == PUSH for each in deps.catalog.channels.declared.values())
        self._remembers = any(
            policy.policy is not None and policy.policy.allow_remember for policy in deps.catalog.policies.values()
        )

    def page(
        self,
        template: str,
        visitor: Browser | None,
        *,
        status: int = 200,
        nav: str = "",
        count: int = 0,
        full: bool = False,
        spoken: str = ENGLISH,
        **context: Any,
    ) -> HTMLResponse:
        """Return a page or a fragment.

        Shows no person without a sign-in, or without a browser, as for early errors. `spoken` is the language in that
        case.
        """
        words = visitor.formatter.text if visitor is not None else partial(text, language=spoken)
        known = visitor if isinstance(visitor, Visitor) else None
        response = HTMLResponse(
            _TEMPLATES.get_template(template).render(
                t=words,
                app=self._deps.name,
                name_of=lambda subject: display_name(self._deps.people, subject),
                visitor=visitor,
                known=known,
                reads_record=known is not None and reads_record(self._deps, known.person),
                operates=known is not None and operates(self._deps, known.person),
                starts=known is not None and known.may_start and bool(self._deps.catalog.models),
                development=self._deps.settings.profile == "development",
                languages=languages().items(),
                people=active_people(self._deps.people),
                remembers=self._remembers,
                notifies=self._notifies,
                language=visitor.formatter.language if visitor is not None else spoken,
                nav=nav,
                count=count,
                full=full,
                **context,
            ),
            status_code=status,
        )
        if visitor is not None:
            self._visitors.remember(visitor, response)
        return response
