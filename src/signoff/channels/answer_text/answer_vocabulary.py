"""Lists the decision words, courtesies and greetings by language.

Decision words exist in fourteen languages, all others in the six languages of the channels. A missing phrase costs a
question back; a wrong one costs money. The decision words therefore exclude words that people also write after reading
a message (`ok`, `noted`) or when they are unsure (`maybe`).
"""

# ruff: noqa: RUF001 (other alphabets look alike)

from collections.abc import Mapping
from typing import Final

# No single letters or short forms: one that approves in one language denies in another (`j`, `n`, `da`).
YES: Final[Mapping[str, str]] = {
    "en": "yes, yep, yeah, yup, yes i do, yes we do",
    "de": "ja, jawohl",
    "es": "sí",
    "fr": "oui",
    "it": "sì",
    "pt": "sim",
    "nl": "ja",
    "pl": "tak",
    "sv": "ja",
    "da": "ja",
    "nb": "ja",
    "fi": "kyllä",
    "cs": "ano",
    "tr": "evet",
}
NO: Final[Mapping[str, str]] = {
    "en": "hard no, not ok, not okay, don't do it, do not do it, don't do this, do not do this, not happening, no, "
    "nope, no way, absolutely not, certainly not, definitely not, of course not, please do not, please don't",
    "de": "nee, nö, nicht ok, nicht okay, nicht in ordnung, kommt nicht in frage, kommt nicht infrage, auf gar "
    "keinen fall, nein, auf keinen fall, keinesfalls, bitte nicht, lieber nicht",
    "es": "ni hablar, para nada, no, de ninguna manera, en absoluto, claro que no, por supuesto que no",
    "fr": "hors de question, pas ok, non, pas question, absolument pas, certainement pas, surtout pas",
    "it": "non se ne parla, neanche per sogno, no, assolutamente no, certo che no, niente affatto",
    "pt": "nem pensar, de modo nenhum, não, de jeito nenhum, de maneira nenhuma, claro que não",
    "nl": "nee, neen",
    "pl": "nie",
    "sv": "nej",
    "da": "nej",
    "nb": "nei",
    "fi": "ei",
    "cs": "ne",
    "tr": "hayır",
}
APPROVE: Final[Mapping[str, str]] = {
    "en": "ack, approve once, yes do it, do it, make it so, go for it, i approve this payment, i approve the "
    "payment, approve, approved, i approve, i have approved, i've approved, i hereby approve, approving, you "
    "have my "
    "approval, approval granted, i agree, agreed, we approve, we agree, accepted, i accept, authorised, "
    "authorized, i authorise, i authorize, confirmed, i confirm, approve it, approve this, approve this "
    "request, i approve this, i approve it, i approve this request, this is approved, it is approved, it's "
    "approved, request approved, go ahead, please go ahead, go ahead please, please proceed, proceed, please "
    "approve, yes approve, yes approved, yes go ahead, lgtm",
    "de": "mach das, mach es, machen sie das, tu das, hiermit genehmige ich das, hiermit genehmige ich die "
    "zahlung, ich genehmige die zahlung, genehmigen, genehmige, genehmigt, freigeben, freigegeben, ich "
    "genehmige, ja genehmigt, ich gebe frei, "
    "freigabe erteilt, genehmigung erteilt, ich stimme zu, einverstanden, ich bin einverstanden, zugestimmt, "
    "bestätigt, ich bestätige, bewilligt, wird genehmigt, ist genehmigt, ist freigegeben, hiermit genehmigt, "
    "hiermit freigegeben, von mir genehmigt, von mir freigegeben, ich genehmige das, ich genehmige es",
    "es": "hazlo, hágalo, háganlo, dale, apruebo el pago, aprobar, apruebo, aprueba, aprobado, aprobada, autorizo, "
    "autorizado, autorizada, estoy de acuerdo, "
    "adelante, confirmo, confirmado, aceptado, acepto, lo apruebo, queda aprobado, está aprobado",
    "fr": "vas-y, allez-y, feu vert, fais-le, faites-le, je valide ce paiement, j'approuve ce paiement, approuver, "
    "approuve, approuvé, approuvée, j'approuve, autoriser, autorisé, autorisée, valider, validé, "
    "validée, je valide, j'autorise, je suis d'accord, accordé, je confirme, confirmé, accepté, j'accepte, "
    "vous pouvez y aller, bon pour accord, c'est approuvé, c'est validé",
    "it": "via libera, fallo pure, fate pure, approvo il pagamento, approvare, approvo, approva, approvato, "
    "approvata, autorizzo, autorizzato, autorizzata, sono d'accordo, "
    "confermo, confermato, confermata, accetto, accettato, procedi, procedete, proceda, procedi pure, "
    "procedete pure, lo approvo, è approvato",
    "pt": "força, avance, podes avançar, siga, aprovo o pagamento, aprovar, aprovo, aprova, aprovado, aprovada, "
    "autorizo, autorizado, autorizada, de acordo, estou de "
    "acordo, concordo, confirmo, confirmado, confirmada, aceito, pode avançar, podem avançar, pode "
    "prosseguir, podem prosseguir, pode seguir, está aprovado, fica aprovado, eu aprovo",
    "nl": "goedkeuren, goedgekeurd, ik keur goed, akkoord",
    "pl": "zatwierdź, zatwierdzam, zatwierdzone, zatwierdzić, akceptuję, akceptuj",
    "sv": "godkänn, godkänner, godkänd, godkänt, godkänna, jag godkänner",
    "da": "godkend, godkender, godkendt, godkende, jeg godkender",
    "nb": "godkjenn, godkjenner, godkjent, godkjenne, jeg godkjenner",
    "fi": "hyväksy, hyväksyn, hyväksytty, hyväksytään",
    "cs": "schválit, schvaluji, schvaluju, schváleno, schval",
    "tr": "onayla, onaylıyorum, onaylandı, onaylı",
}
DENY: Final[Mapping[str, str]] = {
    "en": "nack, nak, /hold, i do not approve this, i don't approve this, i'm not approving, i'm not approving "
    "this, i'm not approving it, i am not approving this, do not pay this, do not pay, don't pay this, don't "
    "pay, deny, denied, i deny, reject, rejected, i reject, decline, declined, i decline, refuse, refused, i "
    "refuse, not approved, don't approve, do not approve, i do not approve, i don't approve, can't approve, "
    "cannot approve, can not approve, i can't approve, i cannot approve, i won't approve, i will not approve, "
    "i disagree, disapprove, disapproved, i disapprove, not authorised, not authorized, deny it, deny this, "
    "reject it, reject this, approval denied, request denied",
    "de": "lehne ich ab, das lehne ich ab, das genehmige ich nicht, ich genehmige das nicht, das gebe ich nicht "
    "frei, ablehnen, ablehne, abgelehnt, lehne ab, ich lehne ab, verweigern, verweigert, nein abgelehnt, "
    "nicht "
    "genehmigt, nicht genehmigen, ich genehmige nicht, genehmige nicht, nicht freigeben, nicht freigegeben, "
    "ich lehne das ab, ich stimme nicht zu, nicht einverstanden, keine freigabe, keine genehmigung",
    "es": "lo rechazo, lo deniego, no lo autorizo, rechazar, rechazo, rechaza, rechazado, rechazada, denegar, "
    "deniego, denegado, denegada, no apruebo, no "
    "lo apruebo, no aprobar, no aprobado, no autorizo, no autorizado, no estoy de acuerdo",
    "fr": "je n'approuve pas ça, je ne l'approuve pas, je le refuse, refuser, refuse, refusé, refusée, je refuse, "
    "rejeter, rejeté, rejetée, je rejette, je n'approuve pas, "
    "pas approuvé, non approuvé, je ne valide pas, non validé, pas validé, pas d'accord, je ne suis pas "
    "d'accord",
    "it": "lo rifiuto, non lo approvo, non lo autorizzo, rifiutare, rifiuto, rifiuta, rifiutato, rifiutata, "
    "respingere, respingo, respingi, respinto, respinta, "
    "nega, nego, negato, non approvo, non approvare, non approvato, non autorizzo, non sono d'accordo",
    "pt": "não o aprovo, não autorizo isto, rejeitar, rejeito, rejeita, rejeitado, rejeitada, recusar, recuso, "
    "recusa, recusado, recusada, negado, "
    "nego, negar, não aprovo, não aprovar, não aprovado, não aprovada, não autorizo, não concordo",
    "nl": "afwijzen, afgewezen, afkeuren, afgekeurd, weigeren, geweigerd, ik weiger",
    "pl": "odrzuć, odrzucam, odrzucone, odrzucić, odmawiam, odmów",
    "sv": "avslå, avslår, avslag, avslaget, neka, nekar, nekad, nekat, jag avslår",
    "da": "afvis, afviser, afvist, afvise, jeg afviser",
    "nb": "avslå, avslår, avslått, avvis, avviser, avvist, jeg avslår, jeg avviser",
    "fi": "hylkää, hylkään, hylätty, hylätään",
    "cs": "zamítnout, zamítám, zamítnuto, zamítni, odmítám, odmítnout",
    "tr": "reddet, reddediyorum, reddedildi",
}
COURTESIES: Final[Mapping[str, str]] = {
    "en": "period, full stop, exclamation mark, exclamation point, that's fine, this is fine, it's fine, "
    "please, thanks, thank you, thank you very much, thank you so much, thanks a lot, thanks so much, many "
    "thanks, thx, cheers, great, perfect, excellent, wonderful, ok, okay, alright, all right, sure, of "
    "course, certainly, absolutely, definitely, gladly, with pleasure, no problem, no worries, fine, all "
    "good, good, very good, nice, nice work, good work, great work, good job, great job, well done, from me, "
    "from my side, by me, for asking, for checking, for your help, for your work, for letting me know, in "
    "advance, again, best, best regards, kind regards, warm regards, regards, best wishes, all the best, "
    "sincerely, yours sincerely, have a nice day, have a great day, have a good day, have a nice weekend, "
    "have a great weekend, have a good weekend, sounds good, looks good, looks good to me, good to go, happy "
    "to, you're welcome, much appreciated, appreciated, appreciate it",
    "de": "punkt, ausrufezeichen, passt so, von mir aus, gute arbeit, schöne arbeit, sieht gut aus, bitte, danke, "
    "danke schön, dankeschön, danke sehr, vielen dank, besten dank, herzlichen dank, tausend "
    "dank, danke dir, danke euch, danke ihnen, gern, gerne, sehr gerne, super, prima, perfekt, gut, sehr gut, "
    "alles gut, alles klar, klar, natürlich, selbstverständlich, sicher, okay, ok, passt, in ordnung, geht "
    "klar, kein problem, kein thema, von mir, von meiner seite, meinerseits, im voraus, vorab, für die info, "
    "für ihre mühe, für deine hilfe, viele grüße, liebe grüße, beste grüße, schöne grüße, herzliche grüße, "
    "freundliche grüße, mit freundlichen grüßen, grüße, gruß, lg, mfg, vg, schönen tag, schönen tag noch, "
    "schönes wochenende",
    "es": "punto, por mí, todo correcto, buen trabajo, se ve bien, por favor, gracias, muchas gracias, mil gracias, "
    "muchísimas gracias, de nada, de acuerdo, perfecto, "
    "perfecta, excelente, genial, estupendo, vale, ok, okay, claro, claro que sí, por supuesto, desde luego, "
    "con gusto, con mucho gusto, sin problema, ningún problema, todo bien, muy bien, bien, bueno, de mi "
    "parte, por mi parte, por avisar, por la ayuda, de antemano, un saludo, saludos, saludos cordiales, un "
    "cordial saludo, atentamente, un abrazo, buen día, que tengas un buen día, buen fin de semana",
    "fr": "point, point d'exclamation, tout à fait, beau travail, bon travail, merci, merci beaucoup, merci bien, "
    "mille mercis, un grand merci, grand merci, s'il vous plaît, s'il te "
    "plaît, svp, stp, parfait, super, d'accord, très bien, bien, excellent, génial, ok, okay, bien sûr, bien "
    "entendu, absolument, certainement, volontiers, avec plaisir, pas de problème, aucun problème, pas de "
    "souci, sans souci, entendu, c'est bon, de ma part, pour moi, par avance, d'avance, cordialement, bien "
    "cordialement, bien à vous, bien à toi, salutations, meilleures salutations, bonne journée, bon week-end, "
    "bonne soirée, à bientôt",
    "it": "punto, per me, bel lavoro, ottimo lavoro, mi sembra giusto, per favore, per piacere, grazie, grazie "
    "mille, molte grazie, tante grazie, mille grazie, grazie tante, "
    "prego, perfetto, ottimo, benissimo, bene, d'accordo, molto bene, va bene, ok, okay, certo, certamente, "
    "sicuramente, assolutamente, volentieri, con piacere, nessun problema, tutto ok, tutto bene, da parte "
    "mia, per me, in anticipo, cordiali saluti, distinti saluti, un saluto, saluti, un caro saluto, cari "
    "saluti, a presto, buona giornata, buon lavoro, buon weekend, buon fine settimana, buona serata",
    "pt": "ponto, por mim, parece bem, ótimo trabalho, por favor, se faz favor, obrigado, obrigada, muito obrigado, "
    "muito obrigada, agradecido, agradecida, "
    "perfeito, ótimo, excelente, tudo bem, tudo certo, certo, claro, claro que sim, com certeza, com prazer, "
    "sem problema, sem problemas, ok, okay, está bem, bom, muito bem, combinado, por mim, da minha parte, "
    "pela ajuda, pelo aviso, desde já, de nada, cumprimentos, os melhores cumprimentos, melhores "
    "cumprimentos, com os melhores cumprimentos, atenciosamente, abraço, um abraço, abraços, saudações, bom "
    "dia, boa tarde, boa noite, bom fim de semana, bom trabalho",
}
"""Words that agree with an approval and do not change it. None of these decides alone."""
GREETINGS: Final[Mapping[str, str]] = {
    "en": "hi, hello, hey, dear, good morning, good afternoon, good evening, morning",
    "de": "hallo, hi, hey, guten tag, guten morgen, guten abend, moin, servus, liebe, lieber, sehr geehrte, sehr "
    "geehrter, sehr geehrte damen und herren, grüß gott, grüezi",
    "es": "hola, buenos días, buenas tardes, buenas noches, buenas, estimado, estimada, estimados, querido, querida",
    "fr": "bonjour, bonsoir, salut, cher, chère, chers, madame, monsieur, madame monsieur",
    "it": "ciao, buongiorno, buonasera, buon pomeriggio, salve, gentile, gentili, caro, cara, cari, spettabile, "
    "egregio",
    "pt": "olá, oi, bom dia, boa tarde, boa noite, viva, caro, cara, caros, prezado, prezada, prezados, estimado",
}
"""Beginnings of a line in which a name may follow, up to its comma or end."""
ADDRESSED: Final[Mapping[str, str]] = {
    "en": "all, team, everyone, there, folks, sir, madam, colleagues, signoff, approvals",
    "de": "zusammen, team, alle, herr, frau, kollegen, kolleginnen und kollegen, kollegin, kollege",
    "es": "todos, todas, equipo, señor, señora, compañeros",
    "fr": "tous, toutes, à tous, à toutes, équipe, l'équipe, collègues, monsieur, madame",
    "it": "tutti, a tutti, team, colleghi, signor, signora",
    "pt": "todos, a todos, equipa, equipe, colegas, senhor, senhora",
}
"""Words that a greeting may address, besides a name."""
JOINTS: Final[Mapping[str, str]] = {"en": "and", "de": "und", "es": "y, e", "fr": "et", "it": "e, ed", "pt": "e"}
"""Words between two phrases, never at an end."""
ORDERS: Final[Mapping[str, str]] = {
    "en": "approve, approve it, approve this, approve this request, please approve, yes approve, approve once, go "
    "ahead, "
    "please go ahead, go ahead please, yes go ahead, please proceed, proceed, do it, yes do it, make it so, go for it",
    "de": "genehmigen, freigeben, genehmige, mach das, mach es, machen sie das, tu das",
    "es": "aprobar, aprueba, adelante, hazlo, hágalo, háganlo, dale",
    "fr": "approuver, approuve, autoriser, autorise, valider, valide, vous pouvez y aller, vas-y, allez-y, fais-le, "
    "faites-le",
    "it": "approvare, approva, procedi, procedete, proceda, procedi pure, procedete pure, fallo pure, fate pure",
    "pt": "aprovar, aprova, pode avançar, podem avançar, podes avançar, pode prosseguir, podem prosseguir, pode "
    "seguir, "
    "força, avance, siga",
}
"""Approvals that are an order to another person if the message addresses that person."""
OURS: Final = frozenset(("signoff", "approvals"))
"""Words of `ADDRESSED` that name Signoff itself."""
TOWARDS: Final[Mapping[str, str]] = {
    "en": "to, for, on",
    "de": "zu, für",
    "es": "a, para",
    "fr": "à, pour",
    "it": "a, per",
    "pt": "a, para, ao",
}
"""Words between a decision and a code."""
OBJECTS: Final[Mapping[str, str]] = {"en": "it, this, that, them", "de": "das, es, sie"}
"""Words after the verb of a request's effect: `book it`."""
ASK: Final[Mapping[str, str]] = {
    "en": "ask, question",
    "de": "frage",
    "es": "pregunta",
    "fr": "question",
    "it": "domanda",
    "pt": "pergunta",
}
"""Words before a question to the agent: `ask: Which invoice?`."""
FIRM: Final[Mapping[str, str]] = {"en": "nope", "de": "nein, nee", "fr": "non"}
"""Denials whose meaning no following word changes, as it does in `no problem`."""
REASONED: Final[Mapping[str, str]] = {"en": "no too, no already", "it": "no troppo, no già"}
"""Denials with the first word of their reason."""
ALIASES: Final[Mapping[str, str]] = {"no": "nb", "nn": "nb"}
NOT_ENGLISH: Final[Mapping[str, frozenset[str]]] = {
    # In these languages `no` begins a sentence, or even agrees.
    "pl": frozenset(("no",)),
    "cs": frozenset(("no",)),
    "fi": frozenset(("no",)),
}
GOOD_SIGNS: Final = frozenset("👍✅✔☑🆗👌🙏🙂😊😀😃😄😁🎉💯🙌👏🤝❤")
"""Emoji that agree. Any other emoji with an approval leads to a question back: its meaning is unclear."""
PRAISE: Final = frozenset("👍✅✔☑🆗👌💯")
"""The `GOOD_SIGNS` that approve, and therefore contradict a denial."""
BAD_SIGNS: Final = frozenset("👎❌🚫⛔✖🛑❎🙅")
SMILES: Final = (":-)", ":)")
NAMED_SIGNS: Final[Mapping[str, str]] = {
    ":shipit:": "👍",
    ":+1:": "👍",
    ":thumbsup:": "👍",
    ":white_check_mark:": "✅",
    ":heavy_check_mark:": "✔",
    ":ok_hand:": "👌",
    ":tada:": "🎉",
    ":-1:": "👎",
    ":thumbsdown:": "👎",
    ":x:": "❌",
    ":no_entry:": "⛔",
    ":no_entry_sign:": "🚫",
}
"""Maps names of emoji in chats and on code hosts to the emoji."""
