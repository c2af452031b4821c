# ruff: noqa: RUF001 (other alphabets look alike)
"""Lists the words with which email clients begin a quote, a signature or an automatic reply.

A missing phrase costs a question back, never a wrong decision: clients write no decision words.
"""

from typing import Final


def _phrases(text: str) -> tuple[str, ...]:
    """Return the phrases between `|`, folded like the lines that are searched for them."""
    return tuple(phrase.strip().casefold() for phrase in text.split("|"))


WROTE: Final = _phrases(
    """
    wrote | writes | schrieb | hat geschrieben | a écrit | a ecrit | écrivait | escribió | escribio | ha scritto |
    scrisse | scriveva | escreveu | schreef | geschreven | napisał | napisal | pisze | skrev | skrifaði |
    kirjoitti | napsal | napísal | píše | yazdı | yazdi | написал | пишет | написав | пише | написа | írta |
    a scris | έγραψε | כתב | كتب | đã viết | menulis | เขียน | napisao | je napisal | kirjutas | rašė | parašė |
    rakstīja | va escriure | escribiu | idatzi du | 写道 | 寫道 | のメール | さんは書きました | 書きました | 작성 |
    님이 쓴
    """
)
"""In the attribution line, besides a date or an address."""
OPENERS: Final = _phrases(
    """
    on | am | le | el | il | em | op | w dniu | dnia | den | d. | dne | på | il giorno | no dia | a | pe | στις |
    в | на | kl. | in data | vào
    """
)
"""First words of attribution lines."""
FROM: Final = frozenset(
    _phrases(
        """
    from | von | de | da | van | od | från | fra | lähettäjä | odesílatel | kimden | gönderen | от | від | feladó |
    de la | από | מאת | من | từ | dari | จาก | 差出人 | 发件人 | 寄件者 | 寄件人 | 보낸 사람 | šalje | saatja |
    nuo | expediteur | expéditeur | remitente | mittente | remetente | afzender | nadawca | absender | avsändare |
    afsender | avsender | odosielateľ | 送信者 | 发件者 | od koho
    """
    )
)
HEADERS: Final = frozenset(
    _phrases(
        """
    to | cc | bcc | sent | date | subject | reply-to | an | gesendet | datum | betreff | kopie | à | envoyé |
    objet | para | enviado | enviado el | enviado em | asunto | assunto | fecha | data | a | inviato | oggetto |
    aan | verzonden | verstuurd | onderwerp | do | dw | wysłano | wysłane | temat | till | skickat | ämne | til |
    sendt | emne | dato | vastaanottaja | lähetetty | aihe | päivämäärä | kopio | komu | odesláno | předmět | kime |
    gönderildi | tarih | konu | bilgi | кому | отправлено | тема | дата | копия | надіслано | címzett | elküldve |
    tárgy | către | trimis | subiect | προς | θέμα | אל | נושא | נשלח | إلى | الموضوع | đến | chủ đề | kepada |
    subjek | 送信日時 | 宛先 | 件名 | 日時 | 发送时间 | 收件人 | 主题 | 抄送 | 寄件日期 | 收件者 | 主旨 |
    받는 사람 | 보낸 날짜 | 제목 | 참조 | importance | priority | wichtigkeit | poslano | predmet | saadetud |
    teema | išsiųsta | envoyé le
    """
    )
)
"""Names of the lines of a quoted header, except the sender's."""
ORIGINAL: Final = frozenset(
    _phrases(
        """
    original message | original appointment | forwarded message | begin forwarded message: | reply message |
    ursprüngliche nachricht | originalnachricht | weitergeleitete nachricht | original-nachricht |
    message d'origine | message d’origine | message original | message transféré | message initial |
    mensaje original | mensaje reenviado | mensagem original | mensagem encaminhada | messaggio originale |
    messaggio inoltrato | oorspronkelijk bericht | oorspronkelijke bericht | doorgestuurd bericht |
    wiadomość oryginalna | oryginalna wiadomość | wiadomość przekazana | ursprungligt meddelande |
    originalmeddelande | oprindelig meddelelse | oprindelig besked | opprinnelig melding | alkuperäinen viesti |
    původní zpráva | původní e-mail | orijinal mesaj | özgün ileti | orijinal ileti | исходное сообщение |
    пересылаемое сообщение | eredeti üzenet | mesaj original | αρχικό μήνυμα | original melding | 元のメッセージ |
    原始邮件 | 原始郵件 | 邮件原件 | 회신된 메시지 | 원본 메시지 | antwort nachricht | pôvodná správa
    """
    )
)
"""Text between dashes above a quote."""
MOBILE: Final = _phrases(
    """
    sent from my | sent from outlook | sent from mail for | sent from yahoo | sent from proton | sent via |
    sent with proton | get outlook for | sent from a mobile | sent using | von meinem | von meiner | gesendet von |
    gesendet mit | diese nachricht wurde von meinem | holen sie sich outlook | outlook für ios |
    outlook for android | envoyé de mon | envoyé depuis | envoyé à partir | télécharger outlook | obtenez outlook |
    provenance : courrier | enviado desde | obtener outlook | enviado do meu | enviado a partir | enviado de meu |
    obter o outlook | inviato da | scarica outlook | ottieni outlook | verzonden vanaf | verstuurd vanaf |
    verzonden met | outlook voor | wysłane z | wysłano z | pobierz program outlook | skickat från | hämta outlook |
    sendt fra | hent outlook | lähetetty | hanki outlook | odesláno z | získejte outlook | iphone'umdan |
    iphone’umdan | ipad'imden | outlook'u edinin | отправлено с | отправлено из | надіслано з | elküldve az |
    trimis de pe | στάλθηκε από | iphoneから送信 | ipadから送信 | 发自我的 | 從我的 | 傳送自 | 获取 outlook |
    나의 iphone | iphone에서 보냄 | outlook 다운로드 | skickades från min
    """
)
"""Beginnings of the line that a device adds below an email."""
AUTOMATIC: Final = _phrases(
    """
    automatic reply | auto reply | auto-reply | autoreply | auto response | autoresponse | out of office |
    out of the office | ooo: | automatische antwort | abwesenheitsnotiz | abwesenheit | nicht im büro |
    réponse automatique | absence du bureau | absent du bureau | message d'absence | respuesta automática |
    respuesta automatica | fuera de la oficina | ausencia de la oficina | risposta automatica | fuori ufficio |
    fuori sede | assenza dall'ufficio | resposta automática | resposta automatica | fora do escritório |
    ausência do escritório | automatisch antwoord | afwezig | autoantwoord | odpowiedź automatyczna |
    autoodpowiedź | poza biurem | automatiskt svar | autosvar | frånvaro | automatisk svar | fraværende |
    ikke på kontoret | automaattinen vastaus | poissa toimistosta | automatická odpověď | mimo kancelář |
    otomatik yanıt | ofis dışında | автоответ | автоматический ответ | автоматична відповідь | automatikus válasz |
    răspuns automat | αυτόματη απάντηση | 自動返信 | 自動応答 | 自动回复 | 自動回覆 | 자동 회신 | 자동 응답 |
    undeliverable | undelivered mail | delivery status notification | mail delivery | delivery failure |
    delivery has failed | returned mail | failure notice | message not delivered | unzustellbar | nicht zustellbar |
    non remis | non distribuable | no se puede entregar | impossibile recapitare
    """
)
"""Beginnings of the subject of an automatic email. A person's subject begins with `Re:`, also in reply to these."""
