"""French: what channels carry, how requests end, and times."""

# ruff: noqa: E501, RUF001 (one text a line, in its own marks)

from collections.abc import Mapping
from typing import Final

TEXTS: Final[Mapping[str, str]] = {
    # What may be written, and what buttons say.
    "word.approve": "approuver",
    "word.deny": "refuser",
    "word.code": "CODE",
    "button.approve": "Approuver",
    "button.deny": "Refuser",
    "button.open": "Ouvrir",
    "button.change": "Modifier",
    "button.back": "Retour",
    "button.why": "Pourquoi (peut rester vide)",
    # The card.
    "card.ask": "Votre approbation est demandée",
    "card.remind": "Votre réponse est toujours attendue",
    "card.doubt": "On ne sait pas si cela a eu lieu",
    "card.undeclared": "L’outil {tool} n’est plus déclaré ici. S’il est approuvé, il ne s’exécute que si un worker l’a encore.",
    "card.late.ok": "L’agent a répondu en retard ({when}) : l’appel a été exécuté.",
    "card.late.execution_failed": "L’agent a répondu en retard ({when}) : l’appel a échoué.",
    "card.late.in_doubt": "L’agent a répondu en retard ({when}) : il ne le sait pas.",
    "card.digest": "{n} demandes attendent votre réponse",
    "card.more": "{n} autres attendent votre réponse ; le lien les montre toutes.",
    "card.more.one": "{n} autre attend votre réponse ; le lien les montre toutes.",
    "card.subject": "{heading} : {effect} ({code})",
    "card.asked": "{actor} veut faire cela pour {who}.",
    "card.again": "Redemandé (révision {n}) : {note}",
    "card.says": "L’agent dit, avec ses propres mots, qui ne font pas partie de ce que vous approuvez :",
    "card.cut": "coupé : {n} caractères",
    "card.incomplete": "Tout n’est pas montré ici. Lisez-le en entier avant de répondre : {link}",
    "card.incomplete_short": "Tout n’est pas montré ici.",
    "card.left_out": "{n} de plus ne sont pas montrés ici",
    "card.left_out.one": "{n} de plus n’est pas montré ici",
    "card.counted": "{n} approbations sur {of} jusqu’ici.",
    "card.still": "Il manque encore : {groups}.",
    "card.group": "{n} parmi {who}",
    "card.counted.one": "{n} approbation sur {of} jusqu’ici.",
    "card.stricter.quorum": "{n} personnes doivent approuver : {reason}.",
    "card.stricter": "Règle plus stricte : {reason}.",
    "card.due": "Répondez avant {when} ({span}) ; sinon c’est refusé.",
    "card.due.extended": "Répondez avant {when} ({span}) ; ensuite d’autres sont aussi sollicités.",
    "card.due.doubt": "Répondez avant {when} ({span}) ; sinon c’est abandonné.",
    "card.code": "Code",
    "card.how.text": "Pour répondre, écrivez « {approve} {code} », ou « {deny} {code} » et pourquoi.",
    "card.how.reply": "Pour répondre, écrivez un seul mot, {approve} ou {deny}. Sous un refus, vous pouvez écrire pourquoi.",
    "card.how.buttons": "Répondez avec les boutons.",
    "card.how.unseen": (
        "Ici, on ne peut que refuser : « {deny} {code} ». Pour approuver, ouvrez-le et lisez-le en entier."
    ),
    "card.how.link": "On n’y répond que connecté : {link}",
    "card.open": "Lire en entier : {link}",
    "rule.requires_approval": "On demande à quelqu’un parce que cet outil a toujours besoin d’une personne.",
    "rule.auto_approve_if": "On demande à quelqu’un parce que la règle qui le laisse passer seul n’était pas remplie.",
    "rule.require_approval_if": "On demande à quelqu’un parce qu’une règle de cet outil l’exige ici.",
    "rule.permission": "On demande à quelqu’un parce que l’outil lui-même le refuse ; un oui passe outre une fois.",
    "rule.requester": "On demande à quelqu’un parce qu’aucune règle ne décide maintenant pour qui le demande.",
    "rule.in_doubt": "On demande à quelqu’un parce que l’outil a commencé et n’a jamais répondu.",
    "rule.because": "On demande à quelqu’un parce que : {why}",
    "rule.other": "On demande à quelqu’un à cause de la règle « {rule} ».",
    # How it ended.
    "end.approved": "Approuvé par {who} {where}, {when}",
    "end.denied": "Refusé par {who} {where}, {when}",
    "end.happened": "{who} dit que cela a eu lieu ({where}, {when})",
    "end.doubt.approved": "{who} dit que cela n’a pas eu lieu ; cela peut être exécuté à nouveau ({where}, {when})",
    "end.doubt.denied": "Abandonné par {who} {where}, {when}",
    "end.doubt.timed_out": "Délai dépassé : personne n’a répondu à temps, c’est donc abandonné",
    "end.timed_out": "Délai dépassé : personne n’a répondu à temps, c’est donc refusé",
    "end.cancelled": "Retiré",
    "end.cancelled_by": "Retiré par {who}, {when}",
    "end.lapsed": "L’approbation n’a pas servi à temps, la question est reposée",
    "end.replaced": "Modifié entre-temps, la question est reposée",
    "end.somebody": "quelqu’un",
    "end.reason": "Motif : {reason}",
    "where.": "dans Temporal",
    "where.inbox": "dans la boîte de réception",
    "where.api": "par l’API",
    "where.cli": "dans un terminal",
    "where.link": "par un lien",
    "where.email": "par e-mail",
    "where.slack": "dans Slack",
    "where.whatsapp": "par WhatsApp",
    "where.twilio": "par SMS",
    "where.telegram": "dans Telegram",
    "where.webhook": "par webhook",
    "where.other": "par {channel}",
    # What became of an answer.
    "receipt.accepted.approved": "Approuvé : votre réponse en décide.",
    "receipt.accepted.denied": "Refusé : votre réponse en décide.",
    "receipt.accepted.happened": "Noté : vous dites que cela a eu lieu.",
    "receipt.accepted.withdrawn": "Retiré.",
    "receipt.counted": "Votre réponse compte : {n} approbations sur {of}. D’autres sont encore sollicités.",
    "receipt.counted.one": "Votre réponse compte : {n} approbation sur {of}. D’autres sont encore sollicités.",
    "receipt.pending": "Votre réponse est gardée et prendra effet dès que possible. Vous n’avez rien d’autre à faire.",
    "receipt.already_decided": "Déjà décidé. {ending}. Votre réponse n’a rien changé.",
    "receipt.duplicate": "Cette réponse nous était déjà parvenue ; elle compte une fois.",
    "receipt.not_allowed": "Vous ne pouvez pas en décider. Rien n’a été décidé.",
    "receipt.self_approval": "Vous l’avez demandé vous-même, c’est donc à quelqu’un d’autre d’en décider. Rien n’a été décidé.",
    "receipt.stale": "La question a été reposée depuis cet envoi, rien n’a donc été décidé. Lisez-la telle qu’elle est maintenant.",
    "receipt.expired": "Le délai de réponse est passé. Votre réponse n’a rien changé.",
    "receipt.cancelled": "Cela a été retiré. Votre réponse n’a rien changé.",
    "receipt.assurance": "Une réponse donnée ici ne suffit pas pour en décider. Connectez-vous pour répondre.",
    "receipt.malformed": "Votre réponse n’a pas pu être acceptée, rien n’a donc été décidé : {why}.",
    "receipt.unknown": "Cette demande n’existe pas, ou elle est close. Rien n’a été décidé.",
    "receipt.unavailable": "Cela ne peut pas être vérifié maintenant, rien n’a donc été décidé. Merci de répondre à nouveau plus tard.",
    "reply.see": "Voir {link}",
    "reply.not_understood": "Aucune décision n’a pu être lue dans votre réponse, rien n’a donc été décidé.",
    "reply.unread": "Ceci pourrait limiter votre réponse ou la retirer : « {line} ».",
    "reply.footer": (
        "Ce que vous écrivez dans les mêmes termes sous votre nom compte comme votre signature dès "
        "que vous aurez répondu ainsi."
    ),
    "reply.which": "Plusieurs demandes attendent votre réponse, rien n’a donc été décidé. Laquelle voulez-vous dire ?",
    "reply.held": "{code} : votre approbation compte dans {span}. Pour l’arrêter, écrivez « non » avant.",
    "reply.taken_back": (
        "{code} : non approuvé, car vous avez écrit de nouveau ou modifié votre message. "
        "Répondez encore une fois pour approuver."
    ),
    "reply.changed": "Un message modifié ou supprimé ne décide rien. Écrivez votre réponse dans un nouveau message.",
    "reply.changed_late": "Votre réponse comptait déjà. Modifier ou supprimer le message ne change rien.",
    "reply.sender": "L’e-mail indique {sender} comme expéditeur, qui ne peut pas répondre pour {person}. Répondez "
    "depuis votre propre compte ou ajoutez {sender} aux délégations de {person}.",
    "reply.before": (
        "Vous avez écrit ceci avant de recevoir la demande, donc rien n’a été décidé. Lisez la demande et "
        "répondez de nouveau."
    ),
    "reply.untimed": (
        "On ne sait pas quand vous avez écrit ceci, donc rien n’a été décidé. Répondez au message qui "
        "contient la demande, ou ouvrez-la."
    ),
    "reply.stranger": "Personne n’est connu ici à cette adresse, on ne peut donc rien répondre depuis elle.",
    "reply.unseen": (
        "Rien n’a été décidé : toutes les valeurs ne tiennent pas ici. Ouvrez-le, lisez tout et approuvez-le là."
    ),
    "reply.reason": "Rien n’a été décidé : un refus exige ici un motif. Écrivez « {deny} {code} » et pourquoi.",
    "reply.link_only": "On n’y répond que connecté, rien n’a donc été décidé.",
    "reply.none": "Rien n’attend votre réponse.",
    "mail.above": "Écrivez votre réponse au-dessus de cette ligne",
    "mail.unproved": (
        "Il n’a pas pu être prouvé que ce message vient de vous : rien n’a donc été décidé. "
        "Répondez là où vous êtes connecté : {link}"
    ),
    # Times.
    "time.over": "le délai est passé",
    "time.in": "dans {span}",
    "time.s": "{n} s",
    "time.min": "{n} min",
    "time.h": "{n} h",
    "time.days": "{n} jours",
    "time.day": "{weekday} {day} {month}",
    "time.at": "{day}, {clock}",
    "time.days_of_week": "lun. mar. mer. jeu. ven. sam. dim.",
    "time.months": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
}
