"""Checks the template for people who have not written lately.

Meta approves it separately for each language, and stores its words and button titles; Signoff only sends the
parameters.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from signoff.channels.envelopes import CheckFinding
from signoff.channels.whatsapp.messages import PARAMETERS
from signoff.formats.visible_text import one_line

_PLACE: Final = re.compile(r"\{\{\s*\w+\s*\}\}")
_SHOWN: Final = 60


def template_language(languages: Mapping[str, str], locale: str) -> str:
    """Return Meta's code of the locale itself, else of its language, else the first."""
    wanted = locale.replace("_", "-").lower()
    known = {name.replace("_", "-").lower(): code for name, code in languages.items()}
    return known.get(wanted) or known.get(wanted.partition("-")[0]) or next(iter(languages.values()))


def check_templates(name: str, languages: Sequence[str], answer: Mapping[str, Any]) -> list[CheckFinding]:
    """Check for each language that the template exists and fits. `answer` is Meta's list of templates."""
    listed = answer.get("data")
    by_language = {
        each.get("language"): each
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict) and each.get("name") == name
    }
    return [_check_template(name, language, by_language.get(language)) for language in dict.fromkeys(languages)]


def _check_template(name: str, language: str, template: Mapping[str, Any] | None) -> CheckFinding:
    what = f"the template `{name}` in `{language}`"
    if template is None:
        return CheckFinding(
            False, f"{what} does not exist", "create it in the WhatsApp Manager, or correct `languages`"
        )
    status = template.get("status")
    if status != "APPROVED":
        shown = one_line(str(status), _SHOWN).text
        return CheckFinding(False, f"{what} is not approved: {shown}", "see the WhatsApp Manager")
    raw = template.get("components")
    parts = [each for each in (raw if isinstance(raw, list) else []) if isinstance(each, dict)]
    places = {place for each in parts if each.get("type") == "BODY" for place in _PLACE.findall(str(each.get("text")))}
    buttons = [button for each in parts if each.get("type") == "BUTTONS" for button in each.get("buttons") or ()]
    kinds = [button.get("type") for button in buttons if isinstance(button, dict)]
    if len(places) != PARAMETERS or kinds[:2] != ["QUICK_REPLY", "QUICK_REPLY"] or len(kinds) != 2:
        remedy = f"give its body {PARAMETERS} parameters, and two quick replies: approve first, then deny"
        return CheckFinding(False, f"{what} has another form", remedy)
    return CheckFinding(True, f"{what} is approved")
