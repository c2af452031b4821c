"""The words by which people decide, each read back into English after it was translated: so is whatever is changed.

A wrong word here makes somebody approve what they meant to deny, or believe that something waits which is over.
"""

# ruff: noqa: RUF001 (apostrophes of the language)

from collections.abc import Mapping
from typing import Final

import pytest

from signoff.texts.catalogue import ENGLISH, language_codes, texts_of

REVIEWED: Final[Mapping[str, Mapping[str, str]]] = {
    "de": {
        "button.approve": "Genehmigen",
        "button.deny": "Ablehnen",
        "edit.approve": "Mit diesen Änderungen genehmigen",
        "batch.approve": "Alle angekreuzten genehmigen",
        "batch.deny": "Alle angekreuzten ablehnen",
        "keys.sure_approved": "Dies genehmigen?",
        "keys.sure_denied": "Dies ablehnen?",
        "doubt.question": "Ist dies geschehen?",
        "doubt.happened": "Es ist geschehen",
        "doubt.again": "Nicht geschehen, jetzt ausführen",
        "doubt.give_up": "Aufgeben",
        "card.votes": "{n} von {of} Genehmigungen",
        "card.one_enough": "Eine Genehmigung genügt.",
        "card.veto": "Eine einzige Ablehnung beendet es.",
        "card.silence.denied": "sonst abgelehnt",
        "card.silence.given_up": "sonst aufgegeben: Der Agent erfährt, dass es niemand weiß",
        "card.by": "Antwort bis",
        "card.due": "Antworten Sie bis {when} ({span}); sonst ist es abgelehnt.",
        "time.over": "die Zeit ist vorbei",
        "ended.approved": "Genehmigt von {who}",
        "ended.denied": "Abgelehnt von {who}",
        "card.withdraw": "Anfrage zurückziehen",
        "freeze.go": "Jetzt einfrieren",
        "freeze.sure": "Alles in {tenant} ablehnen, bis jemand es auftaut",
        "remember.on": "Beim nächsten Mal dieselbe Antwort geben",
        "grants.approved": "Wird ohne Nachfrage ausgeführt",
        "grants.denied": "Wird ohne Nachfrage abgelehnt",
        "grants.revoke": "Widerrufen",
        "ended.doubt.approved": "{who} sagt, dass es nicht geschehen ist: Es darf noch einmal ausgeführt werden",
        "ended.doubt.denied": "Aufgegeben von {who}",
        "card.due.doubt": "Antworten Sie bis {when} ({span}); sonst wird es aufgegeben.",
        "card.due.extended": "Antworten Sie bis {when} ({span}); dann werden auch andere gefragt.",
    },
    "es": {
        "button.approve": "Aprobar",
        "button.deny": "Rechazar",
        "edit.approve": "Aprobar con estos cambios",
        "batch.approve": "Aprobar todas las marcadas",
        "batch.deny": "Rechazar todas las marcadas",
        "keys.sure_approved": "¿Aprobar esto?",
        "keys.sure_denied": "¿Rechazar esto?",
        "doubt.question": "¿Ocurrió esto?",
        "doubt.happened": "Ocurrió",
        "doubt.again": "No ocurrió, ejecutar ahora",
        "doubt.give_up": "Abandonar",
        "card.votes": "{n} de {of} aprobaciones",
        "card.one_enough": "Basta una aprobación.",
        "card.veto": "Un solo rechazo lo termina.",
        "card.silence.denied": "si no, queda rechazado",
        "card.silence.given_up": "si no, se abandona: se dice al agente que nadie lo sabe",
        "card.by": "responda antes de",
        "card.due": "Responda antes de {when} ({span}); si no, queda rechazado.",
        "time.over": "el plazo terminó",
        "ended.approved": "Aprobado por {who}",
        "ended.denied": "Rechazado por {who}",
        "card.withdraw": "Retirar la solicitud",
        "freeze.go": "Congelar ahora",
        "freeze.sure": "Rechazar todo en {tenant} hasta que alguien lo descongele",
        "remember.on": "Dar la misma respuesta la próxima vez",
        "grants.approved": "Se ejecuta sin preguntar",
        "grants.denied": "Se rechaza sin preguntar",
        "grants.revoke": "Revocar",
        "ended.doubt.approved": "{who} dice que no ocurrió: puede volver a ejecutarse",
        "ended.doubt.denied": "Abandonado por {who}",
        "card.due.doubt": "Responda antes de {when} ({span}); si no, se abandona.",
        "card.due.extended": "Responda antes de {when} ({span}); después se pregunta también a otros.",
    },
    "fr": {
        "button.approve": "Approuver",
        "button.deny": "Refuser",
        "edit.approve": "Approuver avec ces modifications",
        "batch.approve": "Approuver toutes les demandes cochées",
        "batch.deny": "Refuser toutes les demandes cochées",
        "keys.sure_approved": "Approuver ceci ?",
        "keys.sure_denied": "Refuser ceci ?",
        "doubt.question": "Cela a-t-il eu lieu ?",
        "doubt.happened": "Cela a eu lieu",
        "doubt.again": "N’a pas eu lieu, exécuter",
        "doubt.give_up": "Abandonner",
        "card.votes": "{n} approbations sur {of}",
        "card.one_enough": "Une approbation suffit.",
        "card.veto": "Un seul refus y met fin.",
        "card.silence.denied": "sinon refusé",
        "card.silence.given_up": "sinon abandonné : on dit à l’agent que personne ne sait",
        "card.by": "réponse avant",
        "card.due": "Répondez avant {when} ({span}) ; sinon c’est refusé.",
        "time.over": "le délai est passé",
        "ended.approved": "Approuvé par {who}",
        "ended.denied": "Refusé par {who}",
        "card.withdraw": "Retirer la demande",
        "freeze.go": "Geler maintenant",
        "freeze.sure": "Tout refuser dans {tenant} jusqu’à ce que quelqu’un le dégèle",
        "remember.on": "Donner la même réponse la prochaine fois",
        "grants.approved": "S’exécute sans demander",
        "grants.denied": "Refusé sans demander",
        "grants.revoke": "Révoquer",
        "ended.doubt.approved": "{who} dit que cela n’a pas eu lieu : cela peut être exécuté à nouveau",
        "ended.doubt.denied": "Abandonné par {who}",
        "card.due.doubt": "Répondez avant {when} ({span}) ; sinon c’est abandonné.",
        "card.due.extended": "Répondez avant {when} ({span}) ; ensuite d’autres sont aussi sollicités.",
    },
    "it": {
        "button.approve": "Approva",
        "button.deny": "Rifiuta",
        "edit.approve": "Approva con queste modifiche",
        "batch.approve": "Approva tutte le richieste spuntate",
        "batch.deny": "Rifiuta tutte le richieste spuntate",
        "keys.sure_approved": "Approvare questo?",
        "keys.sure_denied": "Rifiutare questo?",
        "doubt.question": "Questo è avvenuto?",
        "doubt.happened": "È avvenuto",
        "doubt.again": "Non è avvenuto, esegui",
        "doubt.give_up": "Rinuncia",
        "card.votes": "{n} approvazioni su {of}",
        "card.one_enough": "Basta un’approvazione.",
        "card.veto": "Un solo rifiuto lo chiude.",
        "card.silence.denied": "altrimenti è rifiutato",
        "card.silence.given_up": "altrimenti si rinuncia: all’agente si dice che nessuno lo sa",
        "card.by": "rispondi entro",
        "card.due": "Rispondi entro {when} ({span}); altrimenti è rifiutato.",
        "time.over": "il tempo è finito",
        "ended.approved": "Approvato da {who}",
        "ended.denied": "Rifiutato da {who}",
        "card.withdraw": "Ritira la richiesta",
        "freeze.go": "Blocca ora",
        "freeze.sure": "Rifiuta tutto in {tenant} finché qualcuno non lo sblocca",
        "remember.on": "Dai la stessa risposta la prossima volta",
        "grants.approved": "Si esegue senza chiedere",
        "grants.denied": "Si rifiuta senza chiedere",
        "grants.revoke": "Revoca",
        "ended.doubt.approved": "{who} dice che non è avvenuto: può essere eseguito di nuovo",
        "ended.doubt.denied": "Abbandonato da {who}",
        "card.due.doubt": "Rispondi entro {when} ({span}); altrimenti si rinuncia.",
        "card.due.extended": "Rispondi entro {when} ({span}); poi si chiede anche ad altri.",
    },
    "pt": {
        "button.approve": "Aprovar",
        "button.deny": "Recusar",
        "edit.approve": "Aprovar com estas alterações",
        "batch.approve": "Aprovar todos os assinalados",
        "batch.deny": "Recusar todos os assinalados",
        "keys.sure_approved": "Aprovar isto?",
        "keys.sure_denied": "Recusar isto?",
        "doubt.question": "Isto aconteceu?",
        "doubt.happened": "Aconteceu",
        "doubt.again": "Não aconteceu, executar",
        "doubt.give_up": "Desistir",
        "card.votes": "{n} de {of} aprovações",
        "card.one_enough": "Basta uma aprovação.",
        "card.veto": "Uma só recusa encerra-o.",
        "card.silence.denied": "senão fica recusado",
        "card.silence.given_up": "senão é abandonado: diz-se ao agente que ninguém sabe",
        "card.by": "responda até",
        "card.due": "Responda até {when} ({span}); senão fica recusado.",
        "time.over": "o prazo terminou",
        "ended.approved": "Aprovado por {who}",
        "ended.denied": "Recusado por {who}",
        "card.withdraw": "Retirar o pedido",
        "freeze.go": "Congelar agora",
        "freeze.sure": "Recusar tudo em {tenant} até alguém o descongelar",
        "remember.on": "Dar a mesma resposta da próxima vez",
        "grants.approved": "Executa-se sem perguntar",
        "grants.denied": "Recusa-se sem perguntar",
        "grants.revoke": "Revogar",
        "ended.doubt.approved": "{who} diz que não aconteceu: pode voltar a ser executado",
        "ended.doubt.denied": "Abandonado por {who}",
        "card.due.doubt": "Responda até {when} ({span}); senão é abandonado.",
        "card.due.extended": "Responda até {when} ({span}); depois pergunta-se também a outros.",
    },
}


def test_the_words_of_every_language_were_read_again() -> None:
    """The same words in each, and no language without them."""
    assert {*REVIEWED, ENGLISH} == set(language_codes())
    assert len({tuple(words) for words in REVIEWED.values()}) == 1


@pytest.mark.parametrize("language", REVIEWED)
def test_the_words_that_decide_are_those_that_were_reviewed(language: str) -> None:
    """Word for word."""
    assert {key: texts_of(language)[key] for key in REVIEWED[language]} == REVIEWED[language]


@pytest.mark.parametrize("language", language_codes())
def test_no_two_answers_read_alike(language: str) -> None:
    """Of the buttons beside one another each says something else, and so do the ways in which a request ends."""
    texts = texts_of(language)
    for keys in (
        ("button.approve", "button.deny", "card.withdraw", "card.edit"),
        ("doubt.happened", "doubt.again", "doubt.give_up"),
        ("batch.approve", "batch.deny"),
        ("state.pending", "state.approved", "state.denied", "state.timed_out", "state.cancelled", "state.lapsed"),
        ("call.ok", "call.refused", "call.execution_failed", "call.in_doubt", "call.skipped"),
    ):
        assert len({texts[key].casefold() for key in keys}) == len(keys)
