"""Single checks of a pair: its form, named tools, echoed descriptions, swapped ends."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from assets.synthesis.contract_reading import get_input_schema, get_properties, resolve_schema
from assets.synthesis.verify.grading import walk_leaves
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.words import fold_pattern, fold_text, stem_word
from assets.vectors.lexicon import collect_words, find_base_form, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.patterns import compile_pattern


@dataclass(frozen=True)
class PairFinding:
    """One thing that is wrong (`certain`) or that the rules cannot confirm.

    Kinds of one request: missing_required_argument, unknown_argument, wrong_type, bad_value,
    bad_schema, missing_required_value, ungrounded_value, names_the_tool, not_an_instruction,
    copies_description. Of a row: unreadable_row, unknown_contract, missing_call, unexpected_call,
    not_borrowed, messages_differ, no_question, no_answer, no_reply, no_error, nothing_missing,
    may_need_a_tool. Of two checkers: picked_another_tool.
    """

    kind: str
    path: str
    reason: str
    certain: bool = True


# ruff: noqa: E501  (tables of phrases read better unbroken)


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
_DONE = compile_pattern(
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
_BEGINS = compile_pattern(fold_pattern(rf"^\W*(?:{'|'.join(_OPENINGS)})"))
_HOLDS = compile_pattern(fold_pattern("|".join(_ANYWHERE)))
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
    r"^\W{0,40}(?:the|this|these|those|it|there|all|an?|current|total|no|\d{1,9})\b[^.?!]*?"
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
        r"|bitte|por favor|lutfen|s'il|per favore|tolong|пожалуйста|хочу|нужн\w{1,20}|покажи|найди|اريد|من فضلك)\b|请|請|帮|幫|给我|我想|我要|需要|告诉|查|ください|ほしい|欲しい|たい|教えて|주세요|줘|싶"
    )
)


def _asks_something(folded: str) -> bool:
    """Whether some clause asks for something: a question, a wish, or a verb that opens it."""
    if _WANTS.search(folded):
        return True
    openings = re.findall(
        r"(?:^|[.;:,!\n-]\s{1,9}|\b(?:and|then|so|now)\s{1,9})\W{0,9}([\w']+)", folded
    )
    return any(find_base_form(word) == word or word in _ASKING for word in openings)


LONGEST = 8000  # characters; pasted code and letters fit, a dump does not


def find_form_flaws(contract: Contract, instruction: str, server: str) -> Iterable[PairFinding]:
    folded = fold_text(instruction[: 4 * LONGEST]).strip()
    if len(re.findall(r"\w", folded[:100])) < 3:
        yield PairFinding("not_an_instruction", "", "the text says nothing")
    elif len(folded) > LONGEST:
        yield PairFinding("not_an_instruction", "", f"{len(folded)} characters are no request")
    elif is_metatalk(folded):
        yield PairFinding("not_an_instruction", "", "talk about a request instead of a request")
    if tool_name := _find_tool_name(contract, instruction, server):
        yield PairFinding("names_the_tool", "", f"the text names {tool_name!r}")


def _find_tool_name(contract: Contract, instruction: str, server: str) -> str | None:
    """The name of the tool or server as only a program would write it, if it is in the text."""
    name = str(contract.get("name") or "")
    escaped = re.escape(name)
    coined = len(split_identifier(name)) > 1 and bool(re.search(r"[_\-./]|[a-z][A-Z]", name))
    if coined and re.search(rf"(?<![\w/.-]){escaped}(?![\w/-])", instruction, re.IGNORECASE):
        # `well-known` hyphens are English too; an identifier is called, used or followed by "tool".
        if "_" in name or re.search(r"[a-z][A-Z]", name) or _is_called_tool(escaped, instruction):
            return name
        if len(split_identifier(name)) > 2:
            return name
    if name and _is_called_tool(escaped, instruction):
        return name
    short = server.split(":", 1)[-1].rsplit("/", 1)[-1]
    ids = [part for part in (server, server.split(":", 1)[-1], short) if re.search(r"[-_/@]", part)]
    return next(
        (part for part in ids if len(part) > 5 and part.lower() in instruction.lower()), None
    )


_NOUN = (
    r"(?:tools?|functions?|endpoint|command|method|api call|ferramenta|herramienta|outil|werkzeug"
    r"|funktion|fonction|funcao|funcion|araci(?:ni)?|fonksiyonu?|alat|strumento)"
)


_CALLS = r"(?:call|invoke|using|use|run|usa|usar|use a|utilise|nutze|benutze|gunakan|usando)"


def _is_called_tool(escaped: str, instruction: str) -> bool:
    """Whether a name that may be an ordinary word is used as a tool's name."""
    if escaped.replace("\\", "").lower() not in instruction.lower():
        return False
    patterns = (
        rf"\b{escaped}[`'\"]?\s+{_NOUN}\b",
        rf"\b{_NOUN}\s+(?:called\s+|named\s+)?[`'\"]?{escaped}\b",
        rf"\b{_CALLS}\s+[`'\"]?{escaped}[`'\"]?\s+(?:with|for|on|to|to set)\s+\w+\s*(?:=|set to)",
        rf"^\W*(?:please\s+)?{_CALLS}\s+[`'\"]?{escaped}[`'\"]?\s*[:.,]",
        rf"`{escaped}`|\b{escaped}\(",
        rf"{escaped}\s*(?:工具|函数|接口|ツール|関数|도구|함수)",
    )
    return any(re.search(pattern, instruction, re.IGNORECASE) for pattern in patterns)


def find_echo(contract: Contract, instruction: str, arguments: JsonObject) -> Iterable[PairFinding]:
    """The description handed back: nearly all words of the request are the description's own, in
    its order."""
    value_words = {
        word for _, leaf in walk_leaves(arguments) for word in extract_content(show_scalar(leaf))
    }
    words = [word for word in extract_content(instruction[:6000]) if word not in value_words][:300]
    described = extract_content(str(contract.get("description") or "")[:6000])
    if len(words) < 4 or not described:
        return
    vocabulary = set(described)
    share = sum(word in vocabulary for word in words) / len(words)
    if len(words) > 4 and share >= 0.85 and find_longest_run(words, described) >= 5:
        yield PairFinding(
            "copies_description", "", f"{share:.0%} of its words are the description's"
        )
    elif sentence := _find_repeated_sentence(words, str(contract.get("description") or "")):
        yield PairFinding("copies_description", "", f"repeats {sentence[:80]!r} word for word")


def show_scalar(leaf: Json) -> str:
    """A scalar as text, its first characters; Python writes no number of thousands of digits."""
    huge = isinstance(leaf, int) and abs(leaf) > 10**400
    return "a huge number" if huge else str(leaf)[:2000]


def _find_repeated_sentence(request_words: list[str], description: str) -> str | None:
    """The sentence of a description that a request goes through in order, its verb first, with
    little besides. Of 1,224 good requests none does, of 40 handed-back ones 22."""
    if not request_words or stem_word(request_words[0]) not in extract_content(description[:200]):
        return None
    for sentence in re.split(r"(?<=[.!?。])\s|\n", description[:2000])[:4]:
        words = extract_content(sentence)[:40]
        if len(words) < 4 or len(set(words) & set(request_words)) < 0.8 * len(set(words)):
            continue
        blocks = SequenceMatcher(
            None, request_words[:120], words, autojunk=False
        ).get_matching_blocks()
        shared = sum(block.size for block in blocks)
        if shared >= max(4, 0.8 * len(words)) and shared >= 0.38 * len(request_words):
            return sentence
    return None


def extract_content(text: str) -> list[str]:
    return [stem_word(word) for word in re.findall(r"\w+", fold_text(text)) if word not in _FILLER]


_FILLER = collect_words(
    "a an the of to in for and or on at by with is it i me my please can you could"
)


def find_longest_run(words: list[str], described: list[str]) -> int:
    """The longest stretch of words that both hold in the same order without a gap."""
    return SequenceMatcher(None, words, described, autojunk=False).find_longest_match().size


# On one half of a development corpus's servers these caught 21 of 22 and refused 6 of 702 good
# requests; on the other half 17 of 18, and 5 of 522.
_SHARE, _RUN, _FEWEST = 0.6, 3, 3


def find_parroting(contract: Contract, instruction: str, arguments: Json) -> str | None:
    """What the request takes over from the contract, or None."""
    value_words = {
        word for _, leaf in walk_leaves(arguments) for word in extract_content(str(leaf))
    }
    words = [word for word in extract_content(instruction) if word not in value_words][:300]
    if len(words) < _FEWEST:
        return None
    vocabulary = _collect_vocabulary(contract)
    share = sum(word in vocabulary for word in words) / len(words)
    if share <= _SHARE:
        return None
    run = find_longest_run(words, extract_content(str(contract.get("description") or "")[:3000]))
    if run < _RUN:
        return None
    return f"{share:.0%} of its words are the contract's, {run} of them in a row"


def _collect_vocabulary(contract: Contract) -> set[str]:
    texts = [" ".join(split_identifier(str(contract.get("name") or "")))]
    texts.append(str(contract.get("description") or "")[:3000])
    for name, of in get_properties(contract).items():
        texts.append(" ".join(split_identifier(str(name))))
        texts.append(str(of.get("description") or "")[:500] if isinstance(of, Mapping) else "")
    return set(extract_content(" ".join(texts)))


_OUT = {"from", "source", "origin", "departure", "start", "src", "base", "depart"}
_IN = {"to", "target", "destination", "dest", "arrival", "end", "dst", "quote", "arrive"}


def find_reversed_ends(arguments: JsonObject, text: RequestText) -> Iterable[PairFinding]:
    """The ends of a call that the text has the other way round."""
    ends: dict[str, list[str | None]] = {}
    for name, value in list(arguments.items())[:60]:
        words = list(split_identifier(str(name)))
        for side, marks in enumerate((_OUT, _IN)):
            if marks & set(words) and isinstance(value, str) and 2 <= len(value) <= 60:
                subject = "_".join(word for word in words if word not in marks)
                ends.setdefault(subject, [None, None])[side] = value
    for out, into in ends.values():
        if out and into and _goes(into, out, text) and not _goes(out, into, text):
            reason = f"the text goes from {into[:40]!r} to {out[:40]!r}"
            yield PairFinding("ungrounded_value", "", reason, certain=False)


def _goes(start: str, end: str, text: RequestText) -> bool:
    """Whether the text says from `start` to `end`."""
    if fold_text(start) not in text.folded or fold_text(end) not in text.folded:
        return False
    from_pattern = r"\b(?:from|de|desde|da|von|aus|od|dari)\b[^.;?!]{0,30}?" + re.escape(
        fold_text(start)
    )
    to_pattern = r"\b[^.;?!]{0,30}?\b(?:to|into|a|para|nach|ke|vers)\b[^.;?!]{0,30}?" + re.escape(
        fold_text(end)
    )
    return re.search(rf"{from_pattern}{to_pattern}\b", text.folded) is not None


# What a description begins with is the value's form; further on it may be of what the tool makes.
_BEGINS_STATED_FORM = r"\W*(?:optional\W+)?(?:(?:a|an|the)\s+)?(?:valid\s+)?"
_JSON = re.compile(
    rf"{_BEGINS_STATED_FORM}JSON[ -](?:string|array|object|text|encoded)\b", re.IGNORECASE
)
_OTHER = re.compile(r"\bor\b", re.IGNORECASE)  # the form is one of several
_BASE64 = re.compile(rf"{_BEGINS_STATED_FORM}base64\b", re.IGNORECASE)
_NAMED = re.compile(r"base64", re.IGNORECASE)
_ENCODED = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\-\r\n]+={0,2}")
_SENTENCE = re.compile(r".{0,300}?(?=[.!?](?:\s|$)|\n|$)|.{0,300}", re.DOTALL)


def find_other_form(contract: Contract, arguments: JsonObject) -> Iterable[PairFinding]:
    """Texts of a call that cannot be read as what the description of their parameter says."""
    root, properties = get_input_schema(contract), get_properties(contract)
    for name, value in arguments.items():
        of = resolve_schema(properties.get(name) or {}, root)
        listed_values = [of.get("default"), of.get("const"), *_list_choices(of)]
        if not isinstance(value, str) or not value or value in listed_values:
            continue
        form = find_stated_form(str(name), str(of.get("description") or ""))
        if form is not None and not _FORMS[form](value):
            reason = f"{value[:60]!r} is not {form}, as the parameter's description says"
            yield PairFinding("bad_value", str(name)[:200], reason)


def find_stated_form(name: str, about: str) -> str | None:
    """JSON or base64, where a text parameter's name or the beginning of its description says so."""
    first = _SENTENCE.match(about)
    if first and _OTHER.search(first[0]):
        return None
    if _NAMED.search(name) or _BASE64.match(about):
        return "base64"
    return "JSON" if _JSON.match(about) else None


def _list_choices(of: JsonObject) -> list[object]:
    """The values that a schema allows, where it lists them."""
    choices = of.get("enum")
    return choices if isinstance(choices, list) else []


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


_FORMS = {"JSON": _is_json, "base64": lambda value: _ENCODED.fullmatch(value) is not None}
