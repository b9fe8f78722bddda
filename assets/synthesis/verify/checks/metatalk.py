# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Is this text a request at all, or talk about one: a model's preamble, refusal, plan or answer?"""

import re

from assets.synthesis.verify.grounding.folding import fold_pattern
from assets.vectors.lexicon import collect_words, find_base_form

_ARTEFACT = (
    r"(?:instructions?|requests?|quer(?:y|ies)|examples?|prompts?|questions?|commands?"
    r"|user messages?|utterances?|variations?)"
)
_RESULT = (
    r"(?:contents?|results?|lists?|output|answers?|responses?|summary|data|information|details)"
)
# How such talk begins.
_OPENINGS = (
    r"(?:sure|certainly|absolutely|of course|okay|ok|great|understood|got it|no problem)\b\s*[!,.:]",
    rf"(?:here (?:is|are)|here's|below (?:is|are)|the following (?:is|are)|this is) "
    rf"(?:an?|some|one|two|three|four|five|\d+) (?:[\w'-]+ ){{0,5}}?{_ARTEFACT}\b",
    rf"(?:here (?:is|are)|here's|below (?:is|are)) (?:the|your) (?:[\w'-]+ ){{0,5}}?{_RESULT}\b",
    r"as an? (?:[\w-]+ )?(?:ai|assistant|language model|chatbot|tool|llm|model)\b",
    r"(?:i'm|i am) (?:sorry|an ai|unable|not able|just an|happy to help|a language)",
    r"(?:sorry|apologies|unfortunately),? (?:but )?(?:i|this|that|the)\b",
    r"i (?:cannot|can't|can not|don't have|do not have|won't) (?:\w+ )?(?:help|assist|provide|generate"
    r"|fulfil|access|browse|create|write|execute|perform|the ability|real-time|enough)",
    r"i (?:would|will|'ll|can|should|could) (?:now |then |first )?(?:(?:use|call|invoke|run) the \S+ "
    r"(?:tool|function|api|endpoint)|generate an? |help you|suggest |recommend |need to call)",
    rf"(?:\w+ )?{_ARTEFACT}\s*(?:#?\d+)?\s*[:=]",
    r"(?:output|response|answer|result|input|task|scenario|user|assistant|note|thought)s?\s*\d*\s*:",
    r"(?:the|this|an?) (?:user|tool|assistant|request|query|instruction)s? (?:\w+ )?(?:wants?|would|needs?|asks?|is|are|should"
    r"|could|returns?|will|can|allows?|takes?|accepts?|has|have|must|provides?|gets?|lets?|retrieves?"
    r"|searches|creates?|sends?|lists?|fetches|requires?|expects?|calls?|does|might|may)\b",
    r"(?:to|in order to) (?:answer|fulfil|satisfy|complete) (?:this|the) (?:request|query|instruction)",
    r"(?:i'll|i will|i'm going to|i am going to|i can|i could) (?:[\w']+ ){1,10}for you\b",
    r"(?:based on|according to|given) (?:the|your|this) (?:request|query|instruction|description|schema"
    r"|tool|function|input|information|user)",
    r"(?:you (?:can|could|should|may) (?:use|call|try|invoke)|step \d|first, i(?:'ll| will)|done[.!]|success"
    r"|no (?:results|data|matches|records|information) (?:were |was |is |are )?(?:found|available)|error[:!])",
    r"(?:the|your) (?:answer|result|output|response|instruction|request|query|prompt|example|task"
    r"|operation|file|message|order|call) (?:is|was|has been|have been|would be|will be|could be)\b",
    r"let me (?:know|think|help|call|use|generate|explain how|provide)\b",
    r"(?:is|does) (?:this|that) (?:instruction|request|example)",
    r"[{\[]\s*\"|```|<\w+>",
    r"(?:here (?:is|are)|here's|these are|below (?:is|are)|follow) (?:(?:some|a few|the|your|several|my|our|these) )?"
    r"(?:[\w'-]+ ){0,2}?(?:steps?|ways?|tips|options|instructions|examples?|how (?:to|you)|guide|overview|breakdown)\b",
    # Chinese, Japanese, Korean
    r"以下是|好的[,，。!！]|当然[,，可]|抱歉|对不起|很抱歉|作为(?:一个|一名)?(?:ai|人工智能|语言模型|助手)|用户(?:希望|想要|想|需要|请求|要求)"
    r"|该(?:工具|函数|用户)|这(?:是一个|个)(?:工具|函数|指令|示例)|我(?:无法|不能)|指令[:：]",
    r"申し訳|もちろん|以下(?:は|が|に)|ユーザー(?:は|が)|このツール|aiとして|かしこまりました|指示[:：]",
    r"죄송|물론|다음은|아래는|사용자(?:가|는|의)|이 도구|저는 ai|인공지능|알겠습니다",
    # German, French, Spanish, Portuguese, Italian, Turkish, Indonesian, Russian
    r"(?:entschuldigung|tut mir leid|es tut mir leid|naturlich|gerne|als (?:ki|sprachmodell)|hier ist"
    r"|hier sind|der (?:nutzer|benutzer)|dieses tool|das tool)\b",
    r"(?:bien sur|voici|je suis desole|desole|en tant qu|l'utilisateur|cet outil|certainement)\b",
    r"(?:claro[!,.]|por supuesto|lo siento|aqui (?:esta|tienes|va)|como (?:un )?(?:modelo|asistente|ia)"
    r"|el usuario|esta herramienta|la herramienta)",
    r"(?:claro[!,.]|com certeza|desculpe|sinto muito|aqui esta|como (?:um )?(?:modelo|assistente|ia)"
    r"|o (?:usuario|utilizador)|esta ferramenta|a ferramenta)",
    r"(?:certo[!,.]|mi dispiace|ecco (?:un|il|la|i|le)|l'utente|come (?:modello|assistente|ia))",
    r"(?:tabii|elbette|uzgunum|maalesef|iste (?:bir|bu|size)|bir yapay zeka|yapay zeka|kullanici\b"
    r"|bu arac|asagida)",
    r"(?:tentu|maaf|berikut|sebagai (?:ai|asisten|model)|pengguna (?:ingin|meminta)|alat ini)\b",
    r"(?:конечно|извините|к сожалению|вот (?:пример|запрос)|как (?:ии|языковая)|пользователь|этот инструмент)",
)
# What a model says when it is done; a person says it too, and then asks for something.
_DONE = re.compile(
    fold_pattern(
        r"^\W*(?:the|this|an?) (?:function|api|endpoint|model|agent|call|server|parameter|argument)s? (?:\w+ )?"
        r"(?:would|needs?|is|are|should|returns?|will|can|allows?|takes?|accepts?|has|must|provides?|gets?|lets?|retrieves?"
        r"|searches|creates?|sends?|lists?|fetches|requires?|expects?|calls?|does|might|may)\b|"
        r"^\W*(?:i've|i have|we've|we have) (?:\w+ )?(?:thought|completed|finished|executed|called|generated|created"
        r"|found|retrieved|sent|updated|successfully|set|added|run|deleted|removed|saved|scheduled|checked|fetched)\b"
        r"|\b(?:has|have|was|were) (?:been )?(?:\w+ )?successful(?:ly)?\b|\bsuccessfully (?:\w+ed|sent|set|run)\b"
        r"|\bbasariyla (?:\w+di|\w+du|\w+ti|tamamlan\w+)|\berfolgreich \w+|\bcon exito\b|\bcom sucesso\b|\bavec succes\b"
        r"|\bcon successo\b|\bberhasil di\w+|успешно \w+|成功(?:了|しました|地)|已(?:成功|完成[。!,，])|완료(?:되었|했)|بنجاح"
        r"|\b(?:is|are) (?:typically|usually|generally|normally|currently) (?:an? |the |between |around |about )?\w+"
    )
)
# What gives such talk away wherever it stands.
_ANYWHERE = (
    r"let me know if (?:you|there|that)\b",
    r"\bi (?:hope|trust) (?:this|that) helps|\bfeel free to\b|\bhappy to help\b|\bhow can i help\b",
    r"\b(?:would|do) you (?:like|want) me to\b|\bplease (?:provide|specify|clarify|tell me which)\b",
    r"(?:anything|something) else i can (?:help|do)",
    r"\bas an ai\b|\blanguage model\b",
    r"\b(?:the|a|this) user (?:\w+ )?(?:wants?|would|could|is asking|asked|asks|wishes|requests?|needs?"
    r"|should|might|can|has in mind|says|said|provided|to)\b",
    r"\bfor (?:the|this) user\b",
    r"\bthe (?:tool|function|api) (?:call|returns?|will return|was called|should|takes|accepts)\b",
    r"\b(?:arguments?|parameters?) (?:should|must|would|is|are) (?:be )?(?:set|given|passed)",
    rf"\b(?:natural|sample|possible|suitable|plausible|example|valid) (?:user )?{_ARTEFACT}\b",
    r"\boutput\s*:\s",
    r"(?:如果您?还?有(?:其他|任何)|希望(?:这|能)(?:对您?)?有?帮助)",
)
_BEGINS = re.compile(fold_pattern(rf"^\W*(?:{'|'.join(_OPENINGS)})"))
_HOLDS = re.compile(fold_pattern("|".join(_ANYWHERE)))
# Somebody speaks, or asks: then a statement may well be a request ("My router is down again").
_SPEAKER = re.compile(
    r"\b(?:i|i'm|i'd|i've|i'll|me|my|mine|we|we're|we've|us|our|you|your|please|let's|lets|need|want"
    r"|should|must|has to|have to|ought|needs?|missing|isn't|aren't|shouldn't|no longer|pls|thanks|cheers|someone|somebody)\b|\?|!"
)
_ASKING = collect_words(
    "remember keep let help put tell turn ship surprise bill book file choose say repeat try come "
    "leave bring catch stop hold throw swap wrap figure sort don't how what when where who why "
    "which is are do does did can could would will should may"
)
_STATES = re.compile(
    r"^\W*(?:the|this|these|those|it|there|all|an?|current|total|no|\d+)\b[^.?!]*?"
    r"\b(?:is|are|was|were|has been|have been|had|contains?|shows?|returned|found|succeeded|failed"
    r"|completed|equals|includes?)\b"
)


def is_metatalk(folded: str) -> bool:
    """Whether a folded text (`grounding.fold`) is talk about a request, or the answer to one."""
    if _BEGINS.search(folded) or _HOLDS.search(folded):
        return True
    return _is_answer(folded) or (_DONE.search(folded) is not None and not _asks_something(folded))


def _is_answer(folded: str) -> bool:
    """A statement of fact by nobody to nobody: what comes back from a tool, not what goes in."""
    if not folded.isascii() or _SPEAKER.search(folded) or not _STATES.search(folded):
        return False
    return not _asks_something(folded)


_WANTS = re.compile(
    fold_pattern(
        r"[?？؟]|\b(?:please|pls|need|want|wanna|must|should|would|could|can you|let's|lets|i'd|like to"
        r"|bitte|por favor|lutfen|s'il|per favore|tolong|пожалуйста|хочу|нужн\w+|покажи|найди|اريد|من فضلك)\b|请|請|帮|幫|给我|我想|我要|需要|告诉|查|ください|ほしい|欲しい|たい|教えて|주세요|줘|싶"
    )
)


def _asks_something(folded: str) -> bool:
    """Whether some clause asks for something: a question, a wish, or a verb that opens it."""
    if _WANTS.search(folded):
        return True
    openings = re.findall(r"(?:^|[.;:,!\n-]\s+|\b(?:and|then|so|now)\s+)\W*([\w']+)", folded)
    return any(find_base_form(word) == word or word in _ASKING for word in openings)
