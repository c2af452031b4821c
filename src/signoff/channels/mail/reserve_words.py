"""Lists words by which a line below somebody's sign-off could take an answer back, or limit it: it is asked about.

Each language's own list, and all are used together: people write in more languages than the one they are known by. What
stands here and in somebody's address costs one question back; what is missing may cost a false yes.
"""

from collections.abc import Mapping
from typing import Final

RESERVE: Final[Mapping[str, str]] = {
    "en": """
        no not never none nothing neither nor cannot can't don't doesn't didn't won't wouldn't shouldn't isn't aren't
        without but however although though except excluding only if unless until till when once provided providing
        assuming subject pending conditional condition conditions wait hold stop cancel cancelled canceled withdraw
        withdrawn revoke revoked undo ignore disregard deny denied reject rejected decline declined refuse refused
        approve approved approval approving disapprove yes yeah after before by later tomorrow today tonight monday
        tuesday wednesday thursday friday saturday sunday week weeks month months max maximum min minimum limit limited
        limits up below under less than more above over least most cap capped half partial partially part percent
        amount total price cost budget eur euro euros usd dollar dollars gbp pound pounds chf maybe perhaps probably
        possibly hopefully unsure doubt question why what which who how kidding joking joke just actually instead
        rather should would could must need needs required require first check verify confirm discuss ask please sorry
        oops wrong mistake test draft tentative tentatively provisional provisionally ps p.s
    """,
    "de": """
        nein nicht nie niemals kein keine keinen keiner keines keinem nichts ohne aber jedoch allerdings außer nur wenn
        falls sofern soweit solange unter bis erst sobald vorausgesetzt vorbehaltlich vorbehalt bedingung warten warte
        stopp halt stornieren storniert abbrechen zurückziehen zurückgezogen widerrufen widerruf ablehnen abgelehnt
        ablehne genehmigt genehmige freigabe freigegeben ja nach vor später morgen heute montag dienstag mittwoch
        donnerstag freitag samstag sonntag woche wochen monat maximal höchstens mindestens weniger mehr über als
        grenze limit halb teilweise prozent betrag summe preis kosten euro franken vielleicht eventuell wahrscheinlich
        hoffentlich zweifel frage warum was welche wer wie scherz spaß eigentlich stattdessen sondern doch soll sollte
        muss müssen zuerst vorher prüfen klären bitte falsch irrtum fehler entwurf
    """,
    "es": """
        no nunca jamás nada ninguno ninguna ni sin pero sino excepto salvo solo sólo solamente únicamente si siempre
        cuando hasta mientras siempre-que sujeto pendiente condición condiciones espera esperar esperen para parar
        cancelar cancela cancelado anular anulado retirar revocar rechazar rechazo rechazado denegado aprobado apruebo
        aprobar sí después antes luego mañana hoy lunes martes miércoles jueves viernes sábado domingo semana semanas
        mes máximo mínimo límite menos más debajo encima parcial mitad ciento importe total precio coste costo
        presupuesto euro euros quizás quizá talvez tal probablemente duda pregunta porque qué cuál quién cómo broma
        mejor debe debería hay primero comprobar verificar confirmar favor perdón error borrador
    """,
    "fr": """
        non ne pas jamais rien aucun aucune ni sans mais cependant toutefois sauf excepté hors seulement uniquement que
        si sinon quand lorsque jusque jusqu'à jusqu'au tant pourvu réserve condition conditions attendre attendez
        attends stop arrêter annuler annulé annulez retirer retiré révoquer refuser refusé rejeté approuvé approuve
        oui après avant plus tard demain aujourd'hui lundi mardi mercredi jeudi vendredi samedi dimanche semaine
        semaines mois maximum minimum limite moins dessous dessus partiel moitié pourcent montant total prix coût
        budget euro euros peut-être probablement doute question pourquoi quoi quel quelle qui comment blague plutôt
        doit devrait faut d'abord vérifier confirmer désolé erreur brouillon
    """,
    "it": """
        no non mai niente nulla nessuno nessuna né senza ma però tuttavia tranne eccetto salvo solo soltanto solamente
        se purché finché quando fino fin appena soggetto condizione condizioni aspetta aspettare attendere attendi
        ferma fermare annulla annullare annullato ritirare ritirato revocare rifiutare rifiuto rifiutato respinto
        approvato approvo sì dopo prima poi domani oggi lunedì martedì mercoledì giovedì venerdì sabato domenica
        settimana settimane mese massimo minimo limite meno più sotto sopra parziale metà cento importo totale prezzo
        costo budget euro forse magari probabilmente dubbio domanda perché cosa quale chi come scherzo scherzavo
        invece meglio deve dovrebbe bisogna verificare confermare scusa errore bozza
    """,
    "pt": """
        não nunca jamais nada nenhum nenhuma nem sem mas porém contudo exceto excepto salvo só somente apenas se senão
        quando até enquanto desde sujeito pendente condição condições espera esperar espere aguarda aguarde parar pare
        cancelar cancela cancelado anular anulado retirar revogar rejeitar rejeito recusar recuso recusado aprovado
        aprovo sim depois antes logo amanhã hoje segunda terça quarta quinta sexta sábado domingo semana semanas mês
        máximo mínimo limite menos mais abaixo acima parcial metade cento valor total preço custo orçamento euro euros
        real reais talvez provavelmente dúvida pergunta porquê quê qual quem brincadeira brincando melhor deve
        deveria precisa primeiro verificar confirmar desculpe erro rascunho ps
    """,
}
MONEY_SIGNS: Final = frozenset("€$£¥₣%<>≤≥")
