"""Checks the templates of Twilio's Content API: whether each exists, fits, and is approved by WhatsApp."""

import re
from collections.abc import Mapping
from typing import Any, Final

from signoff.channels import CheckFinding
from signoff.channels.whatsapp import PARAMETERS
from signoff.formats.visible_text import one_line

ACTIONS: Final = ("signoff.approve.{{5}}", "signoff.deny.{{5}}")
"""The ids of the two buttons: what Twilio brings when one is pressed."""
_PLACE: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SHOWN: Final = 60


def check_template(content: str, template: Mapping[str, Any], approval: Mapping[str, Any]) -> CheckFinding:
    """Returns whether a template can carry a card; `template` and `approval` are Twilio's two answers about it."""
    what = f"the template {content}"
    reply = _map(_map(template, "types"), "twilio/quick-reply")
    actions = reply.get("actions")
    ids = tuple(each.get("id") for each in actions if isinstance(each, dict)) if isinstance(actions, list) else ()
    places = set(_PLACE.findall(str(reply.get("body", ""))))
    if ids != ACTIONS or places != {str(number) for number in range(1, PARAMETERS + 1)}:
        remedy = f"make it a quick reply with {{{{1}}}} to {{{{{PARAMETERS}}}}} in its body, and the ids {ACTIONS}"
        return CheckFinding(False, f"{what} has another form", remedy)
    status = _map(approval, "whatsapp").get("status")
    if status != "approved":
        shown = one_line(str(status), _SHOWN).text
        return CheckFinding(False, f"{what} is not approved: {shown}", "see the Content Template Builder of Twilio")
    return CheckFinding(True, f"{what} is approved")


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}
