"""Recognises sentences that leave the approval next to them unchanged, such as `Nice one.`: without a reserve word,
number, imperative, question or another request's name. Verbs are not recognised: a sentence counts only if it begins
with a word that no imperative begins with.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from signoff.channels.answer_text.answer_tokens import AnswerToken, fold, tokens

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
"""Words with which a line below a sign-off may retract or limit an answer, so that Signoff asks about the line.

All lists apply together: people write in more languages than their own. A word of this list in an address costs one
question back; a missing word may cost a false approval.
"""
MONEY_SIGNS: Final = frozenset("€$£¥₣%<>≤≥")

_MOST_WORDS: Final = 20
_LEAST_WORDS: Final = 3
"""Fewer words are slang as often as praise: `my foot`."""

OPENERS: Final[Mapping[str, str]] = {
    "en": "i i've i'm we we've it it's that that's this the they they've he she looks looking sounds seems very really",
    "de": "ich wir es das die der den dem dies diese dieser dieses er sehr sieht klingt freut freue",
    "es": "es está este esta esto el la los las muy parece suena conozco conocemos",
    "fr": "c'est ce cette ces le la les l'équipe je j'ai nous il elle ils elles très",
    "it": "è questo questa il la i le ho conosco conosciamo molto sembra",
    "pt": "é está este esta isto o a os as conheço conhecemos muito parece",
}
"""Words that begin a statement and never an imperative."""
PRAISE: Final[Mapping[str, str]] = {
    "en": "nice good great well lovely excellent perfect wonderful awesome impressive congratulations",
    "de": "schön schöne gut gute guter gutes super toll tolle klasse top glückwunsch",
    "es": "buen buena bueno excelente gran genial enhorabuena felicidades",
    "fr": "bon bonne beau belle bien bravo excellent super félicitations",
    "it": "bel bello bella buon buono buona ottimo ottima bravo brava bravi complimenti",
    "pt": "bom boa ótimo ótima excelente parabéns belo bela",
}
"""Words that begin praise, however short."""
THANKS: Final = [
    "thanks for the",
    "thanks for your",
    "thanks for this",
    "thank you for the",
    "thank you for your",
    "danke für die",
    "danke für den",
    "danke für das",
    "danke für deine",
    "danke für ihre",
    "gracias por el",
    "gracias por la",
    "gracias por tu",
    "gracias por su",
    "merci pour le",
    "merci pour la",
    "merci pour ce",
    "merci pour cette",
    "merci pour votre",
    "merci pour ton",
    "grazie per il",
    "grazie per la",
    "grazie per lo",
    "obrigado pelo",
    "obrigado pela",
    "obrigada pelo",
    "obrigada pela",
]
"""Thanks for things. Thanks for acts (`merci de m'envoyer ...`) are orders."""
_LIMITS: Final = """
    two three four five six seven eight nine ten eleven twelve twenty thirty fifty hundred thousand million twice
    double dozen couple few several some zwei drei vier fünf sechs sieben acht neun zehn zwanzig fünfzig hundert
    tausend doppelt einige dos tres cuatro cinco seis siete ocho nueve diez cien mil doble deux trois quatre cinq
    sept huit neuf dix cent mille double due tre quattro cinque sei sette otto nove dieci mille doppio dois duas
    três quatro sete oito dez cem want wants wanted expect expects assume assumes presume suppose guess think
    believe hope trust would mean meant means another other others same rest both each every joke jokes jest for
    covers concerns applies see seen read reading received look check review discuss talk think send tell call ask
    give let make change erwarte erwarten will wollen möchte möchten brauche brauchen glaube denke hoffe vermute
    meine meinte andere anderen anderer anderes rest beide jede jeden jeder gelesen gesehen erhalten für gilt
    schicke schicken bekomme quiero queremos necesito espero supongo creo pienso otro otra otros otras ambos cada
    resto visto leído recibido para veux voulons voudrais besoin espère suppose pense crois autre autres reste
    chaque vu lu reçu pour attends voglio vorrei bisogno spero suppongo penso credo altro altra altri altre resto
    ogni visto letto ricevuto per aspetto quero queremos preciso espero suponho acho penso acredito outro outra
    outros outras resto cada visto lido recebido para aguardo s'il s'ils foot ass
"""
"""Words of limits, doubts, expectations and mere reading, besides `RESERVE`."""
_CHOSEN: Final = frozenset(
    ("one", "ones", "second", "third", "last", "cheaper", "cheapest", "smaller", "smallest", "bigger", "biggest")
)
_STEMS: Final = (
    *("approv", "aprob", "aprov", "genehm", "freig", "autori", "valid", "deny", "deni", "reject", "rejet", "rechaz"),
    *("refus", "rifiut", "recus", "ablehn", "abgelehn", "cancel", "annul", "stornier", "confirm", "bestat", "conferm"),
)


def is_remark(sentence: Sequence[AnswerToken], effects: Mapping[str, str]) -> bool:
    """`effects` has all open requests."""
    if any(piece.kind not in ("word", "pause", "good") or piece.text in (":", ";") for piece in sentence):
        return False
    words = [piece.text for piece in sentence if piece.kind == "word"]
    if not words or len(words) > _MOST_WORDS or not _begins_well(words):
        return False
    if any(not word.replace("'", "").isalpha() or word.startswith(_STEMS) for word in words):
        return False
    limits = _limits()
    # `for` limits, except in thanks.
    counted = words[3:] if " ".join(words[:3]) in _folded_thanks() else words
    if any(word in limits or word.partition("'")[2] in limits for word in counted):
        return False
    return _names_of_some(effects).isdisjoint(words)


def _begins_well(words: Sequence[str]) -> bool:
    if words[0] in _all_words(PRAISE):
        return True
    if words[0] in _all_words(OPENERS) and len(words) >= _LEAST_WORDS:
        # `The small one` chooses.
        return _CHOSEN.isdisjoint(words)
    line = " ".join(words)
    # Thanks for a future act are an order.
    return line.startswith(_folded_thanks()) and not any(word.endswith("ing") for word in words)


def _names_of_some(effects: Mapping[str, str]) -> frozenset[str]:
    """Return the words that are not in the effects of all open requests."""
    each = [frozenset(token.text for token in tokens(effect) if token.kind == "word") for effect in effects.values()]
    return frozenset().union(*each) - frozenset(each[0]).intersection(*each[1:]) if len(each) > 1 else frozenset()


@cache
def _limits() -> frozenset[str]:
    return frozenset(map(fold, " ".join((*RESERVE.values(), _LIMITS)).split()))


def _all_words(table: Mapping[str, str]) -> frozenset[str]:
    return _words(tuple(table.values()))


@cache
def _words(rows: tuple[str, ...]) -> frozenset[str]:
    return frozenset(fold(word) for row in rows for word in row.split())


@cache
def _folded_thanks() -> tuple[str, ...]:
    return tuple(map(fold, THANKS))
