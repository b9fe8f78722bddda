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
from warehouse.storage.files import read_data


@dataclass(frozen=True)
class PairFinding:
    """One thing that is wrong (`certain`) or that the rules cannot confirm.

    Kinds of one request: missing_required_argument, unknown_argument, wrong_type, bad_value,
    bad_schema, missing_required_value, ungrounded_value, names_the_tool, not_an_instruction,
    copies_description, nearer_sibling. Of a row: unreadable_row, unknown_contract, missing_call,
    unexpected_call, not_borrowed, messages_differ, no_question, no_answer, no_reply, no_error,
    nothing_missing, may_need_a_tool. Of two checkers: picked_another_tool.
    """

    kind: str
    path: str
    reason: str
    certain: bool = True


_WORDS = read_data(__file__, "words.toml")
_DONE = compile_pattern(fold_pattern("|".join(_WORDS["done"])))


def _join_phrases(name: str) -> str:
    text = "|".join(_WORDS[name]).replace("<artefact>", _WORDS["artefact"])
    return text.replace("<result>", _WORDS["result"])


_BEGINS = compile_pattern(fold_pattern(rf"^\W*(?:{_join_phrases('openings')})"))
_HOLDS = compile_pattern(fold_pattern(_join_phrases("anywhere")))
# Somebody speaks, or asks: then a statement may well be a request ("My router is down again").
_SPEAKER = re.compile(
    r"\b(?:i|i'm|i'd|i've|i'll|me|my|mine|we|we're|we've|us|our|you|your|please|let's|lets|need|want"
    r"|should|must|has to|have to|ought|needs?|missing|isn't|aren't|shouldn't|no longer|pls"
    r"|thanks|cheers|someone|somebody)\b|\?|!"
)
_ASKING = collect_words(_WORDS["asking"])
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


_WANTS = re.compile(fold_pattern("|".join(_WORDS["wants"])))


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
    """The description handed back: nearly all words of the request are its own, in its order."""
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
    """The sentence of a description that a request goes through in order with little besides."""
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
    texts = [" ".join(split_identifier(str(contract.get("name") or "")))]
    texts.append(str(contract.get("description") or "")[:3000])
    for name, of in get_properties(contract).items():
        texts.append(" ".join(split_identifier(str(name))))
        texts.append(str(of.get("description") or "")[:500] if isinstance(of, Mapping) else "")
    vocabulary = set(extract_content(" ".join(texts)))
    share = sum(word in vocabulary for word in words) / len(words)
    if share <= _SHARE:
        return None
    run = find_longest_run(words, extract_content(str(contract.get("description") or "")[:3000]))
    if run < _RUN:
        return None
    return f"{share:.0%} of its words are the contract's, {run} of them in a row"


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
    choices = of.get("enum")
    return choices if isinstance(choices, list) else []


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


_FORMS = {"JSON": _is_json, "base64": lambda value: _ENCODED.fullmatch(value) is not None}
