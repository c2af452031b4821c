"""WhatsApp's messages and templates, for channels that reach WhatsApp through another provider."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.channels.whatsapp.messages import PARAMETERS as PARAMETERS
    from signoff.channels.whatsapp.messages import plain as plain
    from signoff.channels.whatsapp.messages import read_button as read_button
    from signoff.channels.whatsapp.messages import template_message as template_message
    from signoff.channels.whatsapp.messages import template_words as template_words
    from signoff.channels.whatsapp.messages import units as units
    from signoff.channels.whatsapp.templates import template_language as template_language

_MODULES = {
    "PARAMETERS": "signoff.channels.whatsapp.messages",
    "plain": "signoff.channels.whatsapp.messages",
    "read_button": "signoff.channels.whatsapp.messages",
    "template_language": "signoff.channels.whatsapp.templates",
    "template_message": "signoff.channels.whatsapp.messages",
    "template_words": "signoff.channels.whatsapp.messages",
    "units": "signoff.channels.whatsapp.messages",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
