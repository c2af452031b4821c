"""German: what channels carry, how requests end, and times."""

# ruff: noqa: E501 (one text a line)

from collections.abc import Mapping
from typing import Final

TEXTS: Final[Mapping[str, str]] = {
    # What may be written, and what buttons say.
    "word.approve": "genehmigen",
    "word.deny": "ablehnen",
    "word.code": "CODE",
    "button.approve": "Genehmigen",
    "button.deny": "Ablehnen",
    "button.open": "Öffnen",
    "button.change": "Ändern",
    "button.back": "Zurück",
    "button.why": "Warum (kann leer bleiben)",
    # The card.
    "card.ask": "Genehmigung nötig",
    "card.remind": "Ihre Antwort steht noch aus",
    "card.doubt": "Es ist nicht bekannt, ob dies geschehen ist",
    "card.undeclared": "Das Werkzeug {tool} ist hier nicht mehr deklariert. Wird es genehmigt, läuft es nur, wenn ein Worker es noch hat.",
    "card.late.ok": "Der Agent hat verspätet gemeldet ({when}): Es wurde ausgeführt.",
    "card.late.execution_failed": "Der Agent hat verspätet gemeldet ({when}): Es ist fehlgeschlagen.",
    "card.late.in_doubt": "Der Agent hat verspätet gemeldet ({when}): Er weiß es nicht.",
    "card.digest": "{n} Anfragen warten auf Ihre Antwort",
    "card.more": "{n} weitere warten auf Ihre Antwort; der Link zeigt alle.",
    "card.more.one": "{n} weitere wartet auf Ihre Antwort; der Link zeigt alle.",
    "card.subject": "{heading}: {effect} ({code})",
    "card.asked": "{actor} möchte dies für {who} tun.",
    "card.again": "Erneut gefragt (Fassung {n}): {note}",
    "card.says": "Der Agent sagt, in eigenen Worten, die nicht Teil dessen sind, was Sie genehmigen:",
    "card.cut": "gekürzt: {n} Zeichen",
    "card.incomplete": "Hier steht nicht alles. Lesen Sie es ganz, bevor Sie antworten: {link}",
    "card.incomplete_short": "Hier steht nicht alles.",
    "card.left_out": "{n} weitere sind hier nicht gezeigt",
    "card.left_out.one": "{n} weiterer Wert ist hier nicht gezeigt",
    "card.counted": "Bisher {n} von {of} Genehmigungen.",
    "card.still": "Noch nötig: {groups}.",
    "card.group": "{n} von {who}",
    "card.stricter.quorum": "{n} Personen müssen genehmigen: {reason}.",
    "card.stricter": "Strenger gefragt: {reason}.",
    "card.due": "Antworten Sie bis {when} ({span}); sonst ist es abgelehnt.",
    "card.due.extended": "Antworten Sie bis {when} ({span}); dann werden auch andere gefragt.",
    "card.due.doubt": "Antworten Sie bis {when} ({span}); sonst wird es aufgegeben.",
    "card.code": "Code",
    "card.how.text": "Um zu antworten, schreiben Sie „{approve} {code}“, oder „{deny} {code}“ und warum.",
    "card.how.reply": (
        "Antworten Sie mit einem einzigen Wort, {approve} oder {deny}. Unter eine "
        "Ablehnung können Sie den Grund schreiben."
    ),
    "card.how.buttons": "Antworten Sie mit den Knöpfen.",
    "card.how.unseen": (
        "Hier kann es nur abgelehnt werden: „{deny} {code}“. Um es zu genehmigen, öffnen und lesen Sie es ganz."
    ),
    "card.how.link": "Dies lässt sich nur beantworten, wenn Sie angemeldet sind: {link}",
    "card.open": "Ganz lesen: {link}",
    "rule.requires_approval": "Menschen werden gefragt, weil dieses Werkzeug immer einen Menschen braucht.",
    "rule.auto_approve_if": "Menschen werden gefragt, weil die Regel, die es ohne einen Menschen zulässt, nicht zutraf.",
    "rule.require_approval_if": "Menschen werden gefragt, weil eine Regel dieses Werkzeugs hier einen Menschen verlangt.",
    "rule.permission": "Menschen werden gefragt, weil die eigene Prüfung des Werkzeugs dies ablehnt; ein Ja setzt sich einmal darüber hinweg.",
    "rule.requester": "Menschen werden gefragt, weil für die anfragende Person jetzt keine Regel entscheidet.",
    "rule.in_doubt": "Menschen werden gefragt, weil das Werkzeug begonnen und nie geantwortet hat.",
    "rule.because": "Menschen werden gefragt, und zwar deshalb: {why}",
    "rule.other": "Menschen werden gefragt wegen der Regel „{rule}“.",
    # How it ended.
    "end.approved": "Genehmigt von {who} {where}, {when}",
    "end.denied": "Abgelehnt von {who} {where}, {when}",
    "end.happened": "{who} sagt, dass es geschehen ist ({where}, {when})",
    "end.doubt.approved": "{who} sagt, dass es nicht geschehen ist; es darf noch einmal ausgeführt werden ({where}, {when})",
    "end.doubt.denied": "Aufgegeben von {who} {where}, {when}",
    "end.doubt.timed_out": "Zeit abgelaufen: Niemand hat rechtzeitig geantwortet, deshalb wurde es aufgegeben",
    "end.timed_out": "Zeit abgelaufen: Niemand hat rechtzeitig geantwortet, deshalb wurde es abgelehnt",
    "end.cancelled": "Zurückgezogen",
    "end.cancelled_by": "Zurückgezogen von {who}, {when}",
    "end.lapsed": "Die Genehmigung wurde nicht rechtzeitig genutzt, es wird erneut gefragt",
    "end.replaced": "Inzwischen geändert, es wird erneut gefragt",
    "end.somebody": "jemand",
    "end.reason": "Grund: {reason}",
    "where.": "in Temporal",
    "where.inbox": "im Posteingang",
    "where.api": "über die API",
    "where.cli": "im Terminal",
    "where.link": "über einen Link",
    "where.email": "per E-Mail",
    "where.slack": "in Slack",
    "where.whatsapp": "per WhatsApp",
    "where.twilio": "per SMS",
    "where.telegram": "in Telegram",
    "where.webhook": "per Webhook",
    "where.other": "über {channel}",
    # What became of an answer.
    "receipt.accepted.approved": "Genehmigt: Ihre Antwort entscheidet es.",
    "receipt.accepted.denied": "Abgelehnt: Ihre Antwort entscheidet es.",
    "receipt.accepted.happened": "Festgehalten: Sie sagen, dass es geschehen ist.",
    "receipt.accepted.withdrawn": "Zurückgezogen.",
    "receipt.counted": "Ihre Antwort ist gezählt: {n} von {of} Genehmigungen. Andere sind noch gefragt.",
    "receipt.pending": "Ihre Antwort ist gespeichert und wirkt, sobald es geht. Sie müssen nichts weiter tun.",
    "receipt.already_decided": "Schon entschieden. {ending}. Ihre Antwort hat nichts geändert.",
    "receipt.duplicate": "Diese Antwort war schon angekommen; sie zählt einmal.",
    "receipt.not_allowed": "Sie dürfen dies nicht entscheiden. Nichts wurde entschieden.",
    "receipt.self_approval": "Sie haben selbst darum gebeten, also entscheidet jemand anderes. Nichts wurde entschieden.",
    "receipt.stale": "Seit dieser Nachricht ist erneut gefragt worden, also wurde nichts entschieden. Lesen Sie, wie es jetzt ist.",
    "receipt.expired": "Die Zeit zum Antworten ist vorbei. Ihre Antwort hat nichts geändert.",
    "receipt.cancelled": "Dies wurde zurückgezogen. Ihre Antwort hat nichts geändert.",
    "receipt.assurance": "Eine Antwort von hier reicht nicht, um dies zu entscheiden. Melden Sie sich an, um zu antworten.",
    "receipt.malformed": "Ihre Antwort konnte nicht angenommen werden, also wurde nichts entschieden: {why}.",
    "receipt.unknown": "Es gibt keine solche Anfrage, oder sie ist vorbei. Nichts wurde entschieden.",
    "receipt.unavailable": "Dies lässt sich gerade nicht nachsehen, also wurde nichts entschieden. Bitte antworten Sie später noch einmal.",
    "reply.see": "Siehe {link}",
    "reply.not_understood": "In Ihrer Antwort war keine Entscheidung zu erkennen, also wurde nichts entschieden.",
    "reply.unread": "Das könnte Ihre Antwort einschränken oder zurücknehmen: „{line}“.",
    "reply.footer": (
        "Was in denselben Worten unter Ihrem Namen steht, gilt als Ihre Signatur, sobald Sie so geantwortet haben."
    ),
    "reply.which": "Mehrere Anfragen warten auf Ihre Antwort, also wurde nichts entschieden. Welche meinen Sie?",
    "reply.held": "{code}: Ihre Genehmigung zählt in {span}. Um sie zu stoppen, schreiben Sie vorher „nein“.",
    "reply.taken_back": (
        "{code}: nicht genehmigt, weil Sie noch einmal geschrieben oder Ihre Nachricht geändert haben. "
        "Antworten Sie erneut zum Genehmigen."
    ),
    "reply.changed": (
        "Eine bearbeitete oder gelöschte Nachricht entscheidet nichts. Schreiben Sie Ihre Antwort als neue Nachricht."
    ),
    "reply.changed_late": "Ihre Antwort galt bereits. Die Nachricht zu bearbeiten oder zu löschen, ändert nichts.",
    "reply.sender": "Die E-Mail nennt {sender} als Absender; von dort darf nicht für {person} geantwortet werden. Antworten "
    "Sie von Ihrem eigenen Konto, oder tragen Sie {sender} als Vertretung von {person} ein.",
    "reply.before": (
        "Sie haben das geschrieben, bevor die Anfrage bei Ihnen ankam. Es wurde nichts entschieden. Lesen "
        "Sie die Anfrage und antworten Sie noch einmal."
    ),
    "reply.untimed": (
        "Es ist nicht bekannt, wann Sie das geschrieben haben. Es wurde nichts entschieden. Antworten Sie "
        "direkt auf die Nachricht mit der Anfrage oder öffnen Sie sie."
    ),
    "reply.stranger": "Unter dieser Adresse ist hier niemand bekannt, also kann von ihr aus nichts beantwortet werden.",
    "reply.unseen": "Nichts wurde entschieden: Hier haben nicht alle Werte Platz. Öffnen Sie es, lesen Sie alles und genehmigen Sie es dort.",
    "reply.reason": "Nichts wurde entschieden: Eine Ablehnung braucht hier einen Grund. Schreiben Sie „{deny} {code}“ und warum.",
    "reply.link_only": "Dies lässt sich nur beantworten, wenn Sie angemeldet sind; also wurde nichts entschieden.",
    "reply.none": "Nichts wartet auf Ihre Antwort.",
    "mail.above": "Bitte oberhalb dieser Zeile antworten",
    "mail.unproved": (
        "Es ließ sich nicht nachweisen, dass diese E-Mail von Ihnen kommt, also wurde nichts "
        "entschieden. Antworten Sie dort, wo Sie angemeldet sind: {link}"
    ),
    # Times.
    "time.over": "die Zeit ist vorbei",
    "time.in": "in {span}",
    "time.s": "{n} s",
    "time.min": "{n} min",
    "time.h": "{n} h",
    "time.days": "{n} Tagen",
    "time.day": "{weekday}, {day}. {month}",
    "time.at": "{day}, {clock}",
    "time.days_of_week": "Mo Di Mi Do Fr Sa So",
    "time.months": "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
}
