"""Italian: what channels carry, how requests end, and times."""

# ruff: noqa: E501, RUF001 (one text a line, in its own marks)

from collections.abc import Mapping
from typing import Final

TEXTS: Final[Mapping[str, str]] = {
    # What may be written, and what buttons say.
    "word.approve": "approva",
    "word.deny": "rifiuta",
    "word.code": "CODICE",
    "button.approve": "Approva",
    "button.deny": "Rifiuta",
    "button.open": "Apri",
    "button.change": "Modifica",
    "button.back": "Indietro",
    "button.why": "Perché (può restare vuoto)",
    # The card.
    "card.ask": "Serve la tua approvazione",
    "card.remind": "Si attende ancora la tua risposta",
    "card.doubt": "Non si sa se questo sia avvenuto",
    "card.undeclared": "Lo strumento {tool} non è più dichiarato qui. Se approvato, viene eseguito solo se un worker lo ha ancora.",
    "card.late.ok": "L’agente ha riferito in ritardo ({when}): è stato eseguito.",
    "card.late.execution_failed": "L’agente ha riferito in ritardo ({when}): non è riuscito.",
    "card.late.in_doubt": "L’agente ha riferito in ritardo ({when}): non lo sa.",
    "card.digest": "{n} richieste attendono la tua risposta",
    "card.more": "Altre {n} attendono la tua risposta; il link le mostra tutte.",
    "card.more.one": "Un’altra attende la tua risposta ({n}); il link le mostra tutte.",
    "card.subject": "{heading}: {effect} ({code})",
    "card.asked": "{actor} vuole farlo per {who}.",
    "card.again": "Richiesto di nuovo (revisione {n}): {note}",
    "card.says": "L’agente dice, con parole sue, che non fanno parte di ciò che approvi:",
    "card.cut": "tagliato: {n} caratteri",
    "card.incomplete": "Qui non si vede tutto. Leggilo per intero prima di rispondere: {link}",
    "card.incomplete_short": "Qui non si vede tutto.",
    "card.left_out": "altri {n} non sono mostrati qui",
    "card.left_out.one": "{n} altro non è mostrato qui",
    "card.counted": "{n} approvazioni su {of} finora.",
    "card.counted.one": "{n} approvazione su {of} finora.",
    "card.still": "Manca ancora: {groups}.",
    "card.group": "{n} di {who}",
    "card.stricter.quorum": "Devono approvare {n} persone: {reason}.",
    "card.stricter": "Richiesta più severa: {reason}.",
    "card.due": "Rispondi entro {when} ({span}); altrimenti è rifiutato.",
    "card.due.extended": "Rispondi entro {when} ({span}); poi si chiede anche ad altri.",
    "card.due.doubt": "Rispondi entro {when} ({span}); altrimenti si rinuncia.",
    "card.code": "Codice",
    "card.how.text": "Per rispondere, scrivi «{approve} {code}», oppure «{deny} {code}» e perché.",
    "card.how.reply": (
        "Per rispondere, scrivi una sola parola, {approve} o {deny}. Sotto un rifiuto puoi scrivere perché."
    ),
    "card.how.buttons": "Rispondi con i pulsanti.",
    "card.how.unseen": ("Qui si può solo rifiutare: «{deny} {code}». Per approvare, aprilo e leggilo per intero."),
    "card.how.link": "A questo si risponde solo dopo l’accesso: {link}",
    "card.open": "Leggilo per intero: {link}",
    "rule.requires_approval": "Si chiede a una persona perché questo strumento ne ha sempre bisogno.",
    "rule.auto_approve_if": "Si chiede a una persona perché la regola che lo lascia passare da solo non valeva.",
    "rule.require_approval_if": "Si chiede a una persona perché una regola di questo strumento qui lo esige.",
    "rule.permission": "Si chiede a una persona perché lo strumento stesso lo rifiuta; un sì lo permette una volta.",
    "rule.requester": "Si chiede a una persona perché ora nessuna regola decide per chi lo chiede.",
    "rule.in_doubt": "Si chiede a una persona perché lo strumento è partito e non ha mai risposto.",
    "rule.because": "Si chiede a una persona perché: {why}",
    "rule.other": "Si chiede a una persona per la regola «{rule}».",
    # How it ended.
    "end.approved": "Approvato da {who} {where}, {when}",
    "end.denied": "Rifiutato da {who} {where}, {when}",
    "end.happened": "{who} dice che è avvenuto ({where}, {when})",
    "end.doubt.approved": "{who} dice che non è avvenuto, quindi può essere eseguito di nuovo ({where}, {when})",
    "end.doubt.denied": "Abbandonato da {who} {where}, {when}",
    "end.doubt.timed_out": "Tempo scaduto: nessuno ha risposto in tempo, quindi si è rinunciato",
    "end.timed_out": "Tempo scaduto: nessuno ha risposto in tempo, quindi è stato rifiutato",
    "end.cancelled": "Ritirato",
    "end.cancelled_by": "Ritirato da {who}, {when}",
    "end.lapsed": "L’approvazione non è stata usata in tempo, e si chiede di nuovo",
    "end.replaced": "Cambiato nel frattempo, e si chiede di nuovo",
    "end.somebody": "qualcuno",
    "end.reason": "Motivo: {reason}",
    "where.": "in Temporal",
    "where.inbox": "nella casella delle richieste",
    "where.api": "tramite l’API",
    "where.cli": "in un terminale",
    "where.link": "tramite un link",
    "where.email": "per e-mail",
    "where.slack": "in Slack",
    "where.whatsapp": "per WhatsApp",
    "where.twilio": "via SMS",
    "where.telegram": "in Telegram",
    "where.webhook": "tramite webhook",
    "where.other": "tramite {channel}",
    # What became of an answer.
    "receipt.accepted.approved": "Approvato: la tua risposta lo decide.",
    "receipt.accepted.denied": "Rifiutato: la tua risposta lo decide.",
    "receipt.accepted.happened": "Annotato: dici che è avvenuto.",
    "receipt.accepted.withdrawn": "Ritirato.",
    "receipt.counted": "La tua risposta conta: {n} approvazioni su {of}. Si attendono ancora altri.",
    "receipt.counted.one": "La tua risposta conta: {n} approvazione su {of}. Si attendono ancora altri.",
    "receipt.pending": "La tua risposta è conservata e avrà effetto appena possibile. Non devi fare altro.",
    "receipt.already_decided": "Già deciso. {ending}. La tua risposta non ha cambiato nulla.",
    "receipt.duplicate": "Questa risposta era già arrivata; conta una volta.",
    "receipt.not_allowed": "Non puoi deciderlo tu. Non è stato deciso nulla.",
    "receipt.self_approval": "L’hai chiesto tu, quindi deve decidere qualcun altro. Non è stato deciso nulla.",
    "receipt.stale": "È stato chiesto di nuovo dopo questo messaggio, quindi non è stato deciso nulla. Leggilo com’è ora.",
    "receipt.expired": "Il tempo per rispondere è finito. La tua risposta non ha cambiato nulla.",
    "receipt.cancelled": "Questo è stato ritirato. La tua risposta non ha cambiato nulla.",
    "receipt.assurance": "Una risposta da qui non basta per deciderlo. Accedi per rispondere.",
    "receipt.malformed": "La tua risposta non si è potuta accettare, quindi non è stato deciso nulla: {why}.",
    "receipt.unknown": "Questa richiesta non esiste, o è chiusa. Non è stato deciso nulla.",
    "receipt.unavailable": "Ora non si può verificare, quindi non è stato deciso nulla. Rispondi di nuovo più tardi.",
    "reply.see": "Vedi {link}",
    "reply.not_understood": "Nella tua risposta non si è letta alcuna decisione, quindi non è stato deciso nulla.",
    "reply.unread": "Questo potrebbe limitare la risposta o ritirarla: «{line}».",
    "reply.footer": "Quello che scrivi con le stesse parole sotto il tuo nome vale come tua firma non appena avrai risposto così.",
    "reply.which": "Più richieste attendono la tua risposta, quindi non è stato deciso nulla. Quale intendi?",
    "reply.held": "{code}: la tua approvazione conta tra {span}. Per fermarla, scrivi «no» prima.",
    "reply.taken_back": (
        "{code}: non approvato, perché hai scritto di nuovo o modificato il messaggio. Rispondi ancora per approvare."
    ),
    "reply.changed": (
        "Un messaggio modificato o eliminato non decide nulla. Scrivi la tua risposta in un nuovo messaggio."
    ),
    "reply.changed_late": "La tua risposta contava già. Modificare o eliminare il messaggio non cambia nulla.",
    "reply.sender": "L’e-mail indica {sender} come mittente, che non può rispondere per {person}. "
    "Risponda dal suo account o aggiunga {sender} alle deleghe di {person}.",
    "reply.before": (
        "Hai scritto questo prima di ricevere la richiesta, quindi non è stato deciso nulla. Leggila e "
        "rispondi di nuovo."
    ),
    "reply.untimed": (
        "Non si sa quando hai scritto questo, quindi non è stato deciso nulla. Rispondi al messaggio con la "
        "richiesta oppure aprila."
    ),
    "reply.stranger": "Qui nessuno è conosciuto con questo indirizzo, quindi da esso non si può rispondere a nulla.",
    "reply.unseen": (
        "Non è stato deciso nulla: qui non ci stanno tutti i valori. Aprilo, leggilo per intero e approvalo lì."
    ),
    "reply.reason": "Non è stato deciso nulla: per rifiutare serve qui un motivo. Scrivi «{deny} {code}» e perché.",
    "reply.link_only": "A questo si risponde solo dopo l’accesso, quindi non è stato deciso nulla.",
    "reply.none": "Nulla attende la tua risposta.",
    "mail.above": "Scrivi la tua risposta sopra questa riga",
    "mail.unproved": (
        "Non è stato possibile provare che questa e-mail viene da te, quindi non è stato deciso "
        "nulla. Rispondi dove hai effettuato l’accesso: {link}"
    ),
    # Times.
    "time.over": "il tempo è finito",
    "time.in": "tra {span}",
    "time.s": "{n} s",
    "time.min": "{n} min",
    "time.h": "{n} h",
    "time.days": "{n} giorni",
    "time.day": "{weekday} {day} {month}",
    "time.at": "{day}, {clock}",
    "time.days_of_week": "lun mar mer gio ven sab dom",
    "time.months": "gen feb mar apr mag giu lug ago set ott nov dic",
}
