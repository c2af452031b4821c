"""Lists the words of email footers by language: closings, devices, contact lines, notices, banners.

A missing phrase costs one question back: once confirmed, a block is known.
"""

# ruff: noqa: RUF001 (marks of other alphabets look alike)

from collections.abc import Mapping
from typing import Final

from signoff.channels.answer_text.answer_tokens import fold


def _words(text: str) -> frozenset[str]:
    """Fold without case, accents and the marks at the words' ends."""
    return frozenset(fold(word.strip(".,:()") or word) for word in text.split())


CLOSINGS: Final[Mapping[str, str]] = {
    "en": "best, best regards, kind regards, kindest regards, warm regards, warmest regards, with kind regards, "
    "with best regards, regards, many regards, best wishes, with best wishes, all the best, all best, "
    "sincerely, sincerely yours, yours sincerely, yours faithfully, yours truly, yours, respectfully, "
    "cordially, cheers, thanks, thank you, thanks a lot, many thanks, thanks and regards, thanks and best "
    "regards, thanks & regards, thank you and best regards, thx, ty, take care, talk soon, br, rgds, kr, "
    "brgds, with thanks, with gratitude, thanks again, thanks so much, thank you very much, thanks very much, "
    "ciao, love, xoxo, have a great day, have a nice day, have a good day, have a good weekend, have a nice "
    "weekend, have a great weekend, hth, best of luck, warmly",
    "de": "mit freundlichen grüßen, mit freundlichem gruß, mit freundlichen grüssen, freundliche grüße, "
    "freundlichen gruß, freundlicher gruß, freundliche grüsse, viele grüße, viele liebe grüße, vielen dank "
    "und viele grüße, beste grüße, mit besten grüßen, mit bestem gruß, liebe grüße, schöne grüße, herzliche "
    "grüße, mit herzlichen grüßen, grüße, gruß, grüsse, gruss, schöner gruß, besten gruß, lieben gruß, lieber "
    "gruß, hochachtungsvoll, mfg, lg, vg, bg, danke, vielen dank, besten dank, danke und gruß, danke und "
    "viele grüße, vielen dank und beste grüße, schönen tag noch, schönes wochenende, herzlichst, dein, deine, "
    "ihr, ihre, tschüss, bis bald",
    "es": "saludos, un saludo, saludos cordiales, cordiales saludos, un cordial saludo, reciba un cordial saludo, "
    "atentamente, atte, muy atentamente, cordialmente, gracias, muchas gracias, gracias y saludos, un abrazo, "
    "abrazos, besos, mis mejores deseos, quedo a su disposición, slds, salu2, buen día, que tenga un buen "
    "día, hasta pronto",
    "fr": "cordialement, bien cordialement, très cordialement, bien à vous, bien à toi, sincères salutations, "
    "salutations distinguées, meilleures salutations, salutations, respectueusement, amicalement, merci, "
    "merci d'avance, merci beaucoup, cdlt, cdt, bàv, à bientôt, bonne journée, bonne soirée, bon week-end, "
    "bien sincèrement, amitiés, bises, belle journée",
    "it": "cordiali saluti, distinti saluti, cordialmente, un cordiale saluto, un saluto, saluti, cari saluti, un "
    "caro saluto, tanti saluti, i migliori saluti, migliori saluti, grazie, grazie mille, molte grazie, "
    "grazie e saluti, a presto, buona giornata, buona serata, buon lavoro, in fede, un abbraccio, ciao",
    "pt": "cumprimentos, os melhores cumprimentos, melhores cumprimentos, com os melhores cumprimentos, cordiais "
    "cumprimentos, com cumprimentos, atenciosamente, atentamente, cordialmente, saudações, saudações "
    "cordiais, obrigado, obrigada, muito obrigado, muito obrigada, um abraço, abraço, abraços, beijos, bjs, "
    "abs, att, cpts, respeitosamente, até breve, até logo, grato, grata",
    # Decision words exist in these languages, too.
    "nl": "met vriendelijke groet, met vriendelijke groeten, vriendelijke groet, vriendelijke groeten, groet, groeten, "
    "mvg, hartelijke groet, hartelijke groeten, bedankt, dank je, dank u, alvast bedankt",
    "pl": "pozdrawiam, z poważaniem, z wyrazami szacunku, pozdrowienia, dziękuję, dzięki, serdecznie pozdrawiam",
    "sv": "med vänlig hälsning, med vänliga hälsningar, vänliga hälsningar, vänlig hälsning, hälsningar, mvh, vh, tack",
    "da": "med venlig hilsen, venlig hilsen, med venlige hilsner, de bedste hilsner, hilsen, mvh, vh, kh, tak",
    "nb": "med vennlig hilsen, vennlig hilsen, beste hilsen, hilsen, mvh, vh, takk",
    "fi": "ystävällisin terveisin, terveisin, t., yst. terv., parhain terveisin, kiitos",
    "cs": "s pozdravem, s přátelským pozdravem, zdravím, děkuji, díky, s úctou",
    "ru": "с уважением, с наилучшими пожеланиями, спасибо",
    "tr": "saygılarımla, saygılar, iyi çalışmalar, teşekkürler, selamlar, sevgiler",
}
"""A line with only one of these, alone or with the sender's own name, ends the body."""
DEVICES: Final = _words(
    """
    sparrow typeapp postbox mailspring polymail superhuman newton mailmate edison canary evolution claws roundcube
    zimbra fastmail hey zoho wiko
    iphone ipad ipod apple watch mac macbook mail icloud android samsung galaxy mobile phone smartphone telephone
    handy handset tablet device blackberry wireless handheld windows outlook ios gmail google pixel huawei xiaomi
    redmi oneplus nokia lumia lg htc motorola moto sony xperia oppo vivo honor yahoo aol proton protonmail tutanota
    thunderbird spark airmail boxer nine fairphone realme nexus verizon at&t t-mobile tmobile sprint rogers telus
    network app apps mobil telefon gerät gesendet geschickt verschickt von meinem meiner mit der für desde mi mon ma
    dal mio mia do meu minha mijn my the a an for on with from via to by using and or de du depuis appareil
    téléphone portable móvil celular teléfono dispositivo cellulare telefonino telemóvel smart pro max plus mini
    ultra note edge xl lite se free get télécharger obtener obter scarica ottieni holen sie sich para pour per over
    4g 5g lte envoyé enviado inviato versendet email e-mail mailbox desktop workspace smartphones telemovel
    mobiltelefon secure min mit enhed enhet urządzenia mojego telefonu laitteesta puhelimesta mého zařízení
    """
)
"""Words after the beginning of the line that a device or email client adds."""
EXCUSES: Final = (
    "please excuse typos",
    "please excuse any typos",
    "please excuse brevity",
    "please excuse my brevity",
    "please excuse the brevity",
    "excuse typos",
    "excuse brevity",
    "excuse my brevity",
    "please excuse brevity and typos",
    "please excuse typos and brevity",
    "pardon typos",
    "pardon my brevity",
    "please forgive typos",
    "please forgive brevity",
    "apologies for typos",
    "apologies for brevity",
    "sorry for typos",
    "sorry for the typos",
    "tippfehler bitte entschuldigen",
    "bitte tippfehler entschuldigen",
    "disculpe la brevedad",
    "perdón por la brevedad",
    "excusez ma brièveté",
    "scusate la brevità",
    "desculpe a brevidade",
)
LABELS: Final = _words(
    """
    tel tel. telephone phone ph ph. mobile mob mob. cell direct office fax fax. home work switchboard ext ext.
    extension hotline email e-mail mail web website www url skype linkedin twitter facebook instagram github xing
    teams zoom whatsapp signal telegram threema calendar address addr t m f e w p o d c telefon mobil handy
    durchwahl zentrale telefax büro anschrift adresse internet teléfono móvil movil celular oficina fijo dirección
    correo téléphone port portable fixe bureau standard courriel site telefono cell. cellulare ufficio indirizzo
    sito telefone telemóvel telem tlm tlf morada endereço escritório correio hrb ust-idnr vat reg nr nr. nif
    siret iban bic pgp gpg key fingerprint
    """
)
"""Labels of phone numbers and addresses in contact lines."""
TITLES: Final = _words(
    """
    management strategy growth content brand compliance audit auditor risk tax payroll insurance investor supply chain
    facilities planning training education innovation corporate enterprise cloud platform backend frontend devops sre
    qa editorial events travel property estate real health safety clinical medical nurse care pharmacy
    manager director head chief officer president vice vp svp evp avp ceo cfo cto coo cio cmo cpo cro ciso chairman
    chairwoman chair executive general senior junior sr jr lead leader principal staff partner founder co-founder
    cofounder owner co-owner engineer engineering developer architect designer consultant analyst accountant
    accounting controller controlling bookkeeper administrator administration admin assistant associate specialist
    coordinator supervisor representative agent advisor adviser counsel attorney lawyer legal paralegal secretary
    treasurer treasury buyer purchasing procurement finance financial sales marketing support operations logistics
    hr human resources recruiting recruiter people it information technology technical security infrastructure
    systems software hardware data science scientist research researcher development r&d product project program
    programme quality assurance service services customer success account business key international global regional
    national local area group team unit department dept division section branch office desk professor prof dr phd
    ph.d mba msc bsc ma ba md esq cpa pmp dipl.-ing dipl dipl. ing ing. mag lecturer fellow student teacher editor
    writer journalist producer public relations communications media press digital web online network database user
    experience ux ui interim deputy acting managing member board trustee emea apac dach europe north south east west
    america asia uk us usa eu geschäftsführer geschäftsführerin geschäftsführung geschäftsleitung leiter leiterin
    leitung abteilung abteilungsleiter abteilungsleiterin bereichsleiter bereichsleiterin teamleiter teamleiterin
    prokurist prokuristin vorstand assistenz assistentin sachbearbeiter sachbearbeiterin buchhaltung buchhalter
    buchhalterin einkauf einkäufer einkäuferin vertrieb vertriebsleiter personal personalleiter personalabteilung
    finanzen rechnungswesen entwicklung entwickler entwicklerin technik kundendienst kundenservice referent
    referentin berater beraterin projektleiter projektleiterin projektleitung kaufmännischer kaufmännische
    technischer technische stellvertretender stellvertretende ingenieur directora gerente jefe jefa responsable
    coordinador coordinadora administrativo administrativa administración contable contabilidad compras ventas
    comercial finanzas recursos humanos ingeniero ingeniera abogado abogada presidente presidenta subdirector
    subdirectora departamento área socio socia consultor consultora técnico técnica desarrollo proyectos
    desarrollador desarrolladora asistente directeur directrice adjoint adjointe chef cheffe comptable comptabilité
    achats acheteur acheteuse ventes ressources humaines finances financier financière ingénieur juriste avocat
    avocate président présidente gérant gérante chargé chargée développeur développeuse conseil consultante
    assistante direction générale général commercial commerciale projet projets direttore direttrice responsabile
    capo ufficio amministratore amministratrice amministrazione amministrativo contabilità contabile acquisti
    vendite risorse umane finanza ingegnere avvocato consulente impiegato impiegata addetto addetta delegato tecnico
    tecnica sviluppo sviluppatore progetto progetti diretor diretora gestor gestora chefe coordenador coordenadora
    administrador administradora administração contabilista contabilidade vendas financeiro financeira engenheiro
    engenheira advogado advogada sócio sócia desenvolvimento desenvolvedor assistente responsável analista
    """
)
PARTICLES: Final = _words(
    """
    of the and for at in to & de del della dello dei degli di da du des la le les der die das den dem für und im am
    von van y e et o do dos d' l' et/ou en al alla | / , - – — · • ( ) ~ *
    """
)
COMPANIES: Final = _words(
    """
    gmbh mbh ag kg ohg ug se ev e.v e.v. eg co co. ltd ltd. limited llc l.l.c llp plc inc inc. corp corp.
    corporation company gmbh&co s.a s.a. sa sas s.a.s sarl s.a.r.l eurl snc srl s.r.l s.r.l. spa s.p.a s.p.a. sl s.l
    s.l. slu lda lda. ltda ltda. s/a bv b.v b.v. nv n.v. ab as a/s aps oy oyj sp pty group holding holdings gruppe
    grupo groupe gruppo university universität universidad université università universidade institute institut
    instituto istituto bank foundation stiftung fundación fondation fondazione fundação solutions consulting
    partners ventures capital labs laboratory laboratories studios ministry school college hospital
    """
)
STREETS: Final = _words(
    """
    street st st. road rd rd. avenue ave ave. boulevard blvd blvd. lane ln drive dr. court square sq place plaza
    suite ste ste. floor fl bldg building room box p.o. po pobox highway hwy parkway pkwy way park house straße
    strasse str str. platz allee weg ring gasse ufer damm postfach etage stock rue cours chemin impasse quai étage
    bp cedex calle c/ avda avda. avenida paseo plz piso planta via viale piazza corso largo vicolo piano rua
    travessa praça praca alameda estrada andar apartado cep lote
    """
)
COUNTRIES: Final = _words(
    """
    germany deutschland austria österreich switzerland schweiz suisse svizzera france frankreich spain españa
    spanien italy italia italien portugal brazil brasil brasilien uk england scotland wales ireland usa u.s.a canada
    mexico méxico argentina netherlands nederland belgium belgique sweden norway denmark finland poland india
    australia japan china singapore luxembourg luxemburg
    """
)
NOTICES: Final[Mapping[str, str]] = {
    "en": "this e-mail and any | this email and any | this message and any | this e-mail message | this email "
    "message | this e-mail is confidential | this email is confidential | this message is confidential | this "
    "communication | this transmission | this message contains | this e-mail contains | this email contains | "
    "this message may contain | this email may contain | this e-mail may contain | the information contained "
    "in this | the information in this | the information transmitted | the contents of this | the content of "
    "this | the contents of the | confidentiality notice | confidentiality: | confidential: | disclaimer | "
    "privileged and confidential | important notice | important: this | notice: this | legal notice | this "
    "message is intended | this e-mail is intended | this email is intended | this email was sent | this "
    "e-mail was sent | if you are not the intended | if you have received this | please consider the "
    "environment | consider the environment | think before you print | please think before | save paper | the "
    "views expressed | any views expressed | email transmission | this electronic",
    "de": "diese e-mail enthält | diese e-mail kann | diese e-mail und | diese e-mail ist | diese mail | diese "
    "nachricht enthält | diese nachricht kann | diese nachricht und | diese nachricht ist | der inhalt dieser "
    "| die information | die in dieser | vertraulichkeitshinweis | haftungsausschluss | wichtiger hinweis: "
    "diese | hinweis: diese | bitte denken sie an die umwelt | denken sie an die umwelt | bitte prüfen sie, "
    "ob diese | schützen sie die umwelt | bitte berücksichtigen sie die umwelt | sollten sie nicht der",
    "es": "este mensaje | este correo | esta comunicación | la información contenida | el contenido de este | aviso "
    "legal | aviso de confidencialidad | confidencialidad: | advertencia legal | cláusula de confidencialidad "
    "| antes de imprimir | por favor, piense en el medio | piense en el medio | protección de datos",
    "fr": "ce message | ce courriel | cet e-mail | cet email | ce mail | les informations contenues | le contenu de "
    "ce | avis de confidentialité | confidentialité : | avertissement : | pensez à l'environnement | merci de "
    "penser à l'environnement | avant d'imprimer | n'imprimez ce",
    "it": "questo messaggio | questa e-mail | questa email | questa comunicazione | le informazioni contenute | il "
    "contenuto di questa | avviso di riservatezza | riservatezza: | nota di riservatezza | prima di stampare "
    "| rispetta l'ambiente | pensa all'ambiente | ai sensi del",
    "pt": "esta mensagem | este e-mail | este email | este correio | esta comunicação | a informação contida | as "
    "informações contidas | o conteúdo desta | o conteúdo deste | aviso legal | aviso de confidencialidade | "
    "confidencialidade: | antes de imprimir | pense no ambiente | pense no meio ambiente",
}
"""Beginnings of notices that companies add below emails: on confidentiality, or on saving paper."""
NOTICE_WORDS: Final = _words(
    """
    confidential confidentiality privileged recipient recipients addressee addressees intended disclose disclosure
    disclosed disseminate dissemination distribution distribute copying copied copy delete destroy notify
    unauthorized unauthorised prohibited attachments attachment attached transmission virus viruses liability liable
    disclaim disclaimer print printing environment proprietary monitored
        addressed vertraulich vertrauliche vertraulichen
    vertraulichkeit empfänger adressat adressaten absender weitergabe weiterleitung unbefugte unbefugten unerlaubte
    kopieren vernichten löschen anhang anhänge umwelt ausdrucken viren haftung irrtümlich
      geschützte confidencial confidencialidad destinatario destinatarios remitente divulgación copia
    difusión prohibida prohibido eliminar elimine borrar adjuntos imprimir medioambiente ambiente
    privilegiada notifique confidentiel confidentielle confidentielles confidentialité destinataire
    destinataires expéditeur diffusion divulgation copie interdite détruire supprimer pièces jointes
    imprimer environnement avertir riservato riservate riservata riservatezza destinatari mittente divulgazione
    diffusione vietata distruggere cancellare allegati stampare gdpr
    confidenciais confidencialidade destinatário destinatários remetente divulgação cópia distribuição proibida
    apagar anexos
    """
)
"""Each sentence of a notice has one of these, and the notice two. Signoff asks about other text."""
AGAINST: Final = _words(
    """
    joke joking kidding mistake mistaken wrong void denial deny pay paid payment buy order act transfer amount invoice
    ignore disregard instead scherz spaß falsch zahlen zahlung broma pago pagar blague payer paiement scherzo pagare
    pagamento brincadeira pagar pagamento
    """
)
"""No sentence of a notice has one of these: notices are about emails, not about the request."""
BANNERS: Final = (
    "[external]", "[ext]", "[extern]", "[external email]", "[external sender]", "[external mail]", "[externe mail]",
    "[externe e-mail]", "[externo]", "[correo externo]", "[externe]", "[courriel externe]", "[esterno]",
    "[e-mail esterna]", "[email externo]", "[mensagem externa]", "*external*", "**external**", "external:",
    "external email:", "(external)", "[secure]", "[caution: external email]", "[caution: external]",
    "*** external ***", "*** external email ***", "***external email***", "[warning: external email]", "[outside]",
    "extern:", "external email", "external sender", "[extern] ", "externe e-mail", "extern", "external",
)  # fmt: skip
"""Texts that a company's mail server writes above or before an email from outside."""
WARNINGS: Final = (
    "caution: this email originated", "caution: this e-mail originated", "caution: this message originated",
    "caution: external email", "caution: external sender", "caution - external", "caution: this is an external",
    "warning: this email originated", "warning: this e-mail originated", "warning: this message originated",
    "this email originated from outside", "this e-mail originated from outside",
    "this message originated from outside", "this email came from outside", "this message was sent from outside",
    "you don't often get email from", "external email:", "external sender:", "external message:",
    "this message is from an external sender", "this is an external email", "this email was sent from outside",
    "attention: this email originated", "achtung: diese e-mail", "vorsicht: diese e-mail", "achtung: externe",
    "vorsicht: externe", "diese e-mail wurde von außerhalb", "diese nachricht wurde von außerhalb",
    "diese e-mail kommt von außerhalb", "diese e-mail stammt von außerhalb", "precaución: este correo",
    "atención: este correo", "este correo electrónico se originó fuera", "este correo proviene de fuera",
    "attention : ce courriel", "attention : ce message", "attention : cet e-mail",
    "ce courriel provient de l'extérieur", "ce message provient de l'extérieur", "attenzione: questa e-mail",
    "attenzione: questo messaggio", "questa e-mail proviene dall'esterno", "cuidado: este e-mail",
    "atenção: este e-mail", "atenção: esta mensagem", "este e-mail teve origem fora", "esta mensagem veio de fora",
    "esta mensagem teve origem",
)  # fmt: skip
"""Beginnings of the longer form of these: a warning about links and attachments."""
WARNING_WORDS: Final = _words(
    """
    external outside organization organisation company links link attachments attachment sender click open recognize
    content safe email e-mail message phishing suspicious caution extern externe außerhalb anhänge absender inhalt
    öffnen klicken externo fuera enlaces adjuntos remitente extérieur liens pièces expéditeur esterno esterna
    allegati mittente fora ligações anexos
    """
)
