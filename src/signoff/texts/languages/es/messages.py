"""Spanish: what channels carry, how requests end, and times."""

from collections.abc import Mapping
from typing import Final

TEXTS: Final[Mapping[str, str]] = {
    # What may be written, and what buttons say.
    "word.approve": "aprobar",
    "word.deny": "rechazar",
    "word.code": "CÓDIGO",
    "button.approve": "Aprobar",
    "button.deny": "Rechazar",
    "button.open": "Abrir",
    "button.change": "Cambiar",
    "button.back": "Volver",
    "button.why": "Por qué (puede quedar vacío)",
    # The card.
    "card.ask": "Se necesita su aprobación",
    "card.remind": "Todavía se espera su respuesta",
    "card.doubt": "No se sabe si esto ocurrió",
    "card.undeclared": (
        "La herramienta {tool} ya no está declarada aquí. Si se aprueba, solo se ejecuta si un worker aún la tiene."
    ),
    "card.late.ok": "El agente informó tarde ({when}): se ejecutó.",
    "card.late.execution_failed": "El agente informó tarde ({when}): falló.",
    "card.late.in_doubt": "El agente informó tarde ({when}): no lo sabe.",
    "card.digest": "{n} solicitudes esperan su respuesta",
    "card.more": "Otras {n} esperan su respuesta; el enlace las muestra todas.",
    "card.more.one": "Otra más espera su respuesta ({n}); el enlace las muestra todas.",
    "card.subject": "{heading}: {effect} ({code})",
    "card.asked": "{actor} quiere hacer esto para {who}.",
    "card.again": "Se pregunta de nuevo (revisión {n}): {note}",
    "card.says": "El agente dice, con sus propias palabras, que no forman parte de lo que usted aprueba:",
    "card.cut": "recortado: {n} caracteres",
    "card.incomplete": "Aquí no se muestra todo. Léalo entero antes de responder: {link}",
    "card.incomplete_short": "Aquí no se muestra todo.",
    "card.left_out": "{n} más no se muestran aquí",
    "card.left_out.one": "{n} más no se muestra aquí",
    "card.counted": "{n} de {of} aprobaciones hasta ahora.",
    "card.still": "Aún falta: {groups}.",
    "card.group": "{n} de {who}",
    "card.stricter.quorum": "Deben aprobar {n} personas: {reason}.",
    "card.stricter": "Se pregunta con más rigor: {reason}.",
    "card.due": "Responda antes de {when} ({span}); si no, queda rechazado.",
    "card.due.extended": "Responda antes de {when} ({span}); después se pregunta también a otros.",
    "card.due.doubt": "Responda antes de {when} ({span}); si no, se abandona.",
    "card.code": "Código",
    "card.how.text": "Para responder, escriba «{approve} {code}», o «{deny} {code}» y el motivo.",
    "card.how.reply": (
        "Para responder, conteste con una sola palabra, {approve} o {deny}. Debajo de un "
        "rechazo puede escribir el motivo."
    ),
    "card.how.buttons": "Responda con los botones.",
    "card.how.unseen": ("Aquí solo se puede rechazar: «{deny} {code}». Para aprobarlo, ábralo y léalo entero."),
    "card.how.link": "Esto solo se responde con la sesión iniciada: {link}",
    "card.open": "Léalo entero: {link}",
    "rule.requires_approval": "Se pregunta a personas porque esta herramienta siempre necesita a una.",
    "rule.auto_approve_if": "Se pregunta a personas porque no se cumplió la regla que lo deja pasar sin una persona.",
    "rule.require_approval_if": "Se pregunta a personas porque una regla de esta herramienta lo pide aquí.",
    "rule.permission": "Se pregunta a personas porque la propia herramienta lo rechaza; un sí lo permite una vez.",
    "rule.requester": "Se pregunta a personas porque ahora ninguna regla decide por quien lo pide.",
    "rule.in_doubt": "Se pregunta a personas porque la herramienta empezó y nunca respondió.",
    "rule.because": "Se pregunta a personas porque: {why}",
    "rule.other": "Se pregunta a personas por la regla «{rule}».",
    # How it ended.
    "end.approved": "Aprobado por {who} {where}, {when}",
    "end.denied": "Rechazado por {who} {where}, {when}",
    "end.happened": "{who} dice que ocurrió ({where}, {when})",
    "end.doubt.approved": "{who} dice que no ocurrió, así que puede volver a ejecutarse ({where}, {when})",
    "end.doubt.denied": "Abandonado por {who} {where}, {when}",
    "end.doubt.timed_out": "Tiempo agotado: nadie respondió a tiempo, así que se abandonó",
    "end.timed_out": "Tiempo agotado: nadie respondió a tiempo, así que se rechazó",
    "end.cancelled": "Retirado",
    "end.cancelled_by": "Retirado por {who}, {when}",
    "end.lapsed": "La aprobación no se usó a tiempo, y se pregunta de nuevo",
    "end.replaced": "Cambió entretanto, y se pregunta de nuevo",
    "end.somebody": "alguien",
    "end.reason": "Motivo: {reason}",
    "where.": "en Temporal",
    "where.inbox": "en la bandeja de entrada",
    "where.api": "por la API",
    "where.cli": "en un terminal",
    "where.link": "por un enlace",
    "where.email": "por correo",
    "where.slack": "en Slack",
    "where.whatsapp": "por WhatsApp",
    "where.twilio": "por SMS",
    "where.telegram": "en Telegram",
    "where.webhook": "por webhook",
    "where.other": "por {channel}",
    # What became of an answer.
    "receipt.accepted.approved": "Aprobado: su respuesta lo decide.",
    "receipt.accepted.denied": "Rechazado: su respuesta lo decide.",
    "receipt.accepted.happened": "Anotado: usted dice que ocurrió.",
    "receipt.accepted.withdrawn": "Retirado.",
    "receipt.counted": "Su respuesta cuenta: {n} de {of} aprobaciones. Aún se pregunta a otros.",
    "receipt.pending": "Su respuesta está guardada y tendrá efecto en cuanto se pueda. No hay que hacer nada más.",
    "receipt.already_decided": "Ya estaba decidido. {ending}. Su respuesta no cambió nada.",
    "receipt.duplicate": "Esta respuesta ya había llegado; cuenta una vez.",
    "receipt.not_allowed": "Usted no puede decidir esto. No se decidió nada.",
    "receipt.self_approval": "Usted mismo lo pidió, así que debe decidirlo otra persona. No se decidió nada.",
    "receipt.stale": "Se preguntó de nuevo desde que recibió esto, así que no se decidió nada. Léalo como está ahora.",
    "receipt.expired": "El plazo para responder terminó. Su respuesta no cambió nada.",
    "receipt.cancelled": "Esto se retiró. Su respuesta no cambió nada.",
    "receipt.assurance": "Una respuesta desde aquí no basta para decidir esto. Inicie sesión para responder.",
    "receipt.malformed": "Su respuesta no se pudo aceptar, así que no se decidió nada: {why}.",
    "receipt.unknown": "No existe esa solicitud, o ya terminó. No se decidió nada.",
    "receipt.unavailable": "Esto no se puede consultar ahora, así que no se decidió nada. Responda de nuevo más tarde.",
    "reply.see": "Véase {link}",
    "reply.not_understood": "No se pudo leer ninguna decisión en su respuesta, así que no se decidió nada.",
    "reply.unread": "Esto podría limitar su respuesta o retirarla: «{line}».",
    "reply.footer": (
        "Lo que escriba con las mismas palabras debajo de su nombre contará como su firma en "
        "cuanto haya respondido así."
    ),
    "reply.which": "Varias solicitudes esperan su respuesta, así que no se decidió nada. ¿A cuál se refiere?",
    "reply.held": "{code}: su aprobación cuenta dentro de {span}. Para detenerla, escriba «no» antes.",
    "reply.taken_back": (
        "{code}: no aprobado, porque usted volvió a escribir o cambió su mensaje. Responda otra vez para aprobar."
    ),
    "reply.changed": "Un mensaje editado o borrado no decide nada. Escriba su respuesta en un mensaje nuevo.",
    "reply.changed_late": "Su respuesta ya contaba. Editar o borrar el mensaje no cambia nada.",
    "reply.sender": "El correo indica {sender} como remitente, que no puede responder por {person}. Responda "
    "desde su propia cuenta o añada {sender} a las delegaciones de {person}.",
    "reply.before": (
        "Escribió esto antes de que le llegara la solicitud, así que no se ha decidido nada. Lea la "
        "solicitud y responda de nuevo."
    ),
    "reply.untimed": (
        "No se sabe cuándo escribió esto, así que no se ha decidido nada. Responda al mensaje con la "
        "solicitud o ábrala."
    ),
    "reply.stranger": "Aquí no se conoce a nadie por esta dirección, así que desde ella no se puede responder nada.",
    "reply.unseen": ("No se decidió nada: aquí no caben todos los valores. Ábralo, léalo entero y apruébelo allí."),
    "reply.reason": "No se decidió nada: rechazar esto exige un motivo. Escriba «{deny} {code}» y por qué.",
    "reply.link_only": "Esto solo se responde con la sesión iniciada, así que no se decidió nada.",
    "reply.none": "Nada espera su respuesta.",
    "mail.above": "Escriba su respuesta encima de esta línea",
    "mail.unproved": (
        "No se pudo demostrar que este correo viene de usted, así que no se decidió nada. Responda "
        "donde haya iniciado sesión: {link}"
    ),
    # Times.
    "time.over": "el plazo terminó",
    "time.in": "en {span}",
    "time.s": "{n} s",
    "time.min": "{n} min",
    "time.h": "{n} h",
    "time.days": "{n} días",
    "time.day": "{weekday} {day} {month}",
    "time.at": "{day}, {clock}",
    "time.days_of_week": "lun mar mié jue vie sáb dom",
    "time.months": "ene feb mar abr may jun jul ago sept oct nov dic",
}
