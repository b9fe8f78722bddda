"""A draft call in any shape: OpenAI (Chat, `function_call`, Responses), Anthropic, Gemini, Bedrock,
Cohere, MCP, LangChain, Vercel AI, LlamaIndex. Keys match without case and separators."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from assets.contracts.repair.json_text import load_first, parse_arguments, read_structure
from serving.repair.code_calls import DraftCall, read_code_calls
from serving.repair.dialects import MOST_LENIENT, UNOPENED_END, cut_marked_calls, read_marked_calls
from warehouse.llm.json_answers import find_fenced, strip_fence
from warehouse.patterns import compile_pattern

_NAMES = (
    *("name", "toolname", "tool", "functionname", "function", "recipientname", "action", "func"),
)
_ARGUMENTS = (
    *("arguments", "input", "parameters", "args", "params", "toolinput", "actioninput", "kwargs"),
    *("toolkwargs", "toolargs", "toolarguments", "toolparameters", "functionarguments"),
)
_IDS = ("callid", "toolcallid", "tooluseid", "id")
_CALLS = ("toolcalls", "invalidtoolcalls", "tooluses", "calls", "functioncalls")  # lists of calls
_HOLDERS = (  # what holds calls, or holds what does; content last: it may repeat them
    *("functioncall", "toolcall", "tooluse", "message", "choices", "candidates", "output", "delta"),
    *("parts", "additionalkwargs", "kwargs", "data", "response", "requiredaction", "messages"),
    *("submittooloutputs", "tool", "call", "items", "content", "text"),
)
_TEXTS = ("content", "text")
_ABOUT = {  # what else stands in a call
    *("type", "index", "role", "status", "description", "title", "strict", "inputschema", "server"),
    *("servername", "namespace", "thought", "reasoning", "pluginname", "annotations"),
}
_NO_CALLS = {"finalanswer", "directlyanswer"}  # answers that some write as a call
_MOST = 200  # drafts of one answer
_MOST_IN_VAIN = 100  # broken values of a text
LONGEST = 4_000_000  # characters of a draft; its arguments have their own limit
DEEPEST = 60  # levels of nesting
_BETWEEN = re.compile(r"[\s,;]{0,100}")
_LIST_OF_CODE = compile_pattern(r"(?:^|\n)\[[A-Za-z_][\w.]*\(")
_UNREAD = "it is no call that can be read: send it again as {name, arguments}"


def read_drafts(value: Any, *, strict: bool = False) -> list[DraftCall]:
    """Every call in a draft: of any vendor, `{name, arguments}`, lists, or text with JSON, a form
    of `serving.repair.dialects` or `name(parameter=value)`; else []. Never raises. strict: broken
    JSON is a fault, what stands in it may be a call, and an object without arguments is none."""
    try:
        drafts = _iterate_drafts(value, 0, strict)
        return [draft for item in drafts for draft in _split_parallel(item)][:_MOST]
    except (RecursionError, ValueError, MemoryError):
        return []


def split_answer(text: str) -> tuple[list[DraftCall], str]:
    """(the calls of an answer, the text without them): those that marks announce, else those that
    are all of the text but its thoughts. Never raises."""
    text = text[:LONGEST]
    try:
        calls, rest, left = [], text, text
        end = load_first(text, 0)[1]
        if end is None or text[end:].lstrip().startswith(UNOPENED_END):
            # A mark in JSON is text of it.
            calls, rest, left = cut_marked_calls(text)
        if not calls:
            bare, before = rest.strip(), text.rstrip()
            calls = _read_whole(strip_fence(bare) or bare) if before.endswith(bare) else []
            left = before.removesuffix(bare) if calls else text
        drafts = [draft for item in calls for draft in _read_marked(item, 0)]
        return [draft for item in drafts for draft in _split_parallel(item)][:_MOST], left
    except (RecursionError, ValueError, MemoryError):
        return [], text


_BROKEN_OFF = compile_pattern(  # the end of a text where a mark may have begun
    r"(?:<(?:[^\s<>][^<>\n]{0,80})?|\[(?:[A-Z_]{0,12}|Called[^\n]{0,160}|C[a-z]{0,5})"
    r"|\bt(?:o(?:=[^\s<>{}]{0,128}(?: [^<{\n]{0,40})?)?)?|(?:^|\n)(?:>{1,3}"
    r"|[ *]{0,9}A(?:c(?:t(?:io?)?)?)?"
    r"|[ *]{0,9}Action\**:?[^\n]{0,140}(?:\n[ *]{0,9}[A-Za-z ]{0,14})?))$"
)
_BARE = compile_pattern(r"^\s*(?:`{1,3}[a-z_]{0,12}\s*)?(\[?)\s*(?:\{\s*\"(\w*)(\"?)|([\w.\-:/]*))")


def may_begin_call(text: str, names: Iterable[str], *, starts: bool) -> bool:
    """Whether a text that goes on may end in the beginning of a call. names: of the tools. starts:
    nothing but thoughts is before it."""
    if _BROKEN_OFF.search(text):
        return True
    if not starts or (bare := _BARE.match(text)) is None:
        return False
    key, name = bare[2], (bare[4] or "").removeprefix("default_api.").removeprefix("functions.")
    if key is not None:
        known = (*_NAMES, *_ARGUMENTS, *_IDS, *_ABOUT, *_CALLS, *_HOLDERS)
        return not bare[3] or _fold_key(key) in known
    following = text[bare.end() : bare.end() + 1]
    if not name:
        return following in ("", "{", "[", "`")
    whole = following in ("(", "\n", " ", "{")
    known = [*names, "print", "default_api.", "functions.", "functools"]
    return any(item == name if whole else item.startswith(name) for item in known)


def _iterate_drafts(value: Any, depth: int, strict: bool = False) -> Iterator[DraftCall]:
    if depth > 8:
        return
    if isinstance(value, DraftCall):
        yield value
    elif isinstance(value, str):
        yield from _read_text(value[:LONGEST], depth, strict)
    elif isinstance(value, list | tuple):
        # The words beside calls are none; without calls they may hold them.
        texts = [item for item in value[:_MOST] if _is_text(item)]
        others = [item for item in value[:_MOST] if not _is_text(item)]
        for part in (others, texts):
            drafts = [draft for item in part for draft in _iterate_drafts(item, depth + 1, strict)]
            if drafts:
                yield from drafts
                return
    elif isinstance(value, Mapping):
        yield from _read_object(value, depth, strict)


def _is_text(item: Any) -> bool:
    return isinstance(item, str) or (
        isinstance(item, Mapping) and isinstance(item.get("text"), str)
    )


def _fold_key(key: Any) -> str:
    return str(key).lower().replace("_", "").replace("-", "")


def _read_object(value: Mapping[str, Any], depth: int, strict: bool) -> Iterator[DraftCall]:
    folded = {_fold_key(key): item for key, item in reversed(dict(value).items())}
    call = _read_call(folded, value, strict)
    holders = [key for key in (*_CALLS, *_HOLDERS) if isinstance(folded.get(key), list | Mapping)]
    if call is not None and ("arguments" in folded or not holders):
        yield call
        return
    listed = [key for key in _CALLS if isinstance(folded.get(key), list | str) and folded[key]]
    if listed:
        for key in listed:
            yield from _read_calls(folded[key], depth, strict)
        return
    for key in _HOLDERS:
        item = folded.get(key)
        if isinstance(item, list | Mapping) or (key in _TEXTS and isinstance(item, str)):
            drafts = list(_iterate_drafts(item, depth + 1, strict))
            if drafts:
                yield from drafts
                return
    if call is not None:
        yield call


def _read_calls(value: Any, depth: int, strict: bool = False) -> Iterator[DraftCall]:
    """Each call of a list of calls: what is none is one with a fault, so that none is lost."""
    items = value if isinstance(value, list) else [value]
    for item in items[:_MOST]:
        drafts = list(_iterate_drafts(item, depth + 1, strict))
        if drafts or item is None:
            yield from drafts
        else:
            yield DraftCall("", item, None, _UNREAD)


def _read_call(
    folded: Mapping[str, Any], value: Mapping[str, Any], strict: bool = False
) -> DraftCall | None:
    """The call that an object itself is. value: the object, whose keys are not folded."""
    call_id = next((folded[key] for key in _IDS if isinstance(folded.get(key), str)), None)
    if folded.get("method") == "tools/call" and isinstance(folded.get("params"), Mapping):
        folded = {_fold_key(key): item for key, item in folded["params"].items()}
    if isinstance(folded.get("function"), Mapping):
        folded = {_fold_key(key): item for key, item in folded["function"].items()}
    name = next((folded[key] for key in _NAMES if isinstance(folded.get(key), str)), None)
    key = next((key for key in _ARGUMENTS if key in folded), None)
    if name is None and key is None:
        return None
    is_definition = key in ("parameters", "input") and "description" in folded and name is not None
    bare_action = key is None and not isinstance(folded.get("name"), str) and "action" in folded
    if is_definition or bare_action or _fold_key(name).replace(" ", "") in _NO_CALLS:
        return None
    if key is None and "function" not in value:
        beside = (*_NAMES, *_IDS, *_ABOUT, *_CALLS, *_HOLDERS)
        flat = {name: item for name, item in value.items() if _fold_key(name) not in beside}
        return None if strict and flat else DraftCall(name or "", flat, call_id)
    return DraftCall(name or "", folded[key] if key else {}, call_id)


def _split_parallel(draft: DraftCall) -> list[DraftCall]:
    """The calls within OpenAI's `multi_tool_use.parallel`, or within one without a name."""
    given, name = draft.arguments, _fold_key(draft.name).rpartition(".")[2]
    if draft.fault or not (name == "" or name.startswith("parallel")):
        return [draft]
    values = parse_arguments(given).values if isinstance(given, str) else [given]
    if not name and len(values) == 1 and isinstance(values[0], Mapping):
        inner = _read_call({_fold_key(key): item for key, item in values[0].items()}, values[0])
        whole = inner is not None and "name" in values[0] and "arguments" in values[0]
        return [inner] if inner and whole else [draft]
    uses = values[0].get("tool_uses") if values and isinstance(values[0], Mapping) else None
    return list(_read_calls(uses, 1)) if isinstance(uses, list) and uses else [draft]


def _read_text(text: str, depth: int, strict: bool) -> Iterator[DraftCall]:
    value, end = load_first(text, 0)
    if end is not None and not text[end:].strip():
        yield from _iterate_drafts(value, depth + 1, strict)
        return
    marked, rest = read_marked_calls(text, strict=strict)
    drafts = [draft for item in marked for draft in _read_marked(item, depth, strict)]
    if drafts and not (strict and all(draft.fault for draft in drafts)):
        yield from drafts
        return
    fenced = find_fenced(rest)[:_MOST]
    drafts = [draft for piece in fenced for draft in _read_piece(piece.strip(), depth, strict)]
    yield from drafts or _read_piece(rest.strip(), depth, strict)


def _read_marked(item: Any, depth: int, strict: bool = False) -> list[DraftCall]:
    return list(_iterate_drafts(item, depth + 1, strict)) or [DraftCall("", item)]


def _read_whole(text: str) -> list[Any]:
    """The calls that all of a text is, each a DraftCall or JSON."""
    if code := read_code_calls(text):
        return code
    name, _, body = text.partition("\n")
    if body.startswith("{") and name.strip().replace("_", "").replace("-", "").isalnum():
        arguments, end = load_first(body, 0)
        if end is not None and not body[end:].strip():  # GLM: the name on a line of its own
            return [DraftCall(name.strip(), arguments)]
    values, at = list[Any](), 0
    while at < len(text):
        value, end = load_first(text, at)
        if end is None or len(values) >= _MOST or not list(_iterate_drafts(value, 1)):
            return []
        values.append(value)
        between = _BETWEEN.match(text, end)
        at = between.end() if between else end
    return values


def _read_piece(text: str, depth: int, strict: bool) -> Iterator[DraftCall]:
    """Calls as code where all of the text is, else those that stand in it as JSON. One that is
    begun as JSON and broken counts where it is the only one, or others stand beside it."""
    if whole := _read_whole(text):
        for item in whole:
            yield from _iterate_drafts(item, depth + 1, strict)
        return
    listed = _LIST_OF_CODE.search(text)
    if listed and (code := read_code_calls(text[listed.start() : text.rfind("]") + 1])):
        yield from code  # Llama 4 writes words before them
        return
    calls: list[DraftCall] = []
    broken: list[DraftCall] = []
    for value, is_whole in _iterate_json(text, strict):
        if strict and broken and isinstance(value, Mapping) and not _holds_arguments(value):
            continue  # a name within a broken call
        if is_whole:
            calls += _iterate_drafts(value, depth + 1, strict)
        else:
            broken.append(DraftCall("", value, None, _UNREAD))
    if calls or (broken and text[:1] in ("{", "[")):
        yield from [*calls, *broken]


def _holds_arguments(value: Mapping[str, Any]) -> bool:
    return any(_fold_key(key) in (*_ARGUMENTS, *_CALLS, *_HOLDERS, "function") for key in value)


def _iterate_json(text: str, strict: bool) -> Iterator[tuple[Any, bool]]:
    """(value, True) of the objects and lists of a text; (its text, False) of what begins as an
    object and cannot be read, to the next line that begins with one; strict: that it begins."""
    at = in_vain = 0
    while in_vain < _MOST_IN_VAIN:
        places = [place for sign in "{[" if (place := text.find(sign, at)) >= 0]
        if not places:
            return
        at = min(places)
        value, end = load_first(text, at)
        if end is not None:
            yield value, True
            at = end
            continue
        in_vain += 1
        if text[at] == "{" and text[at + 1 : at + 20].lstrip()[:1] in ('"', "'"):
            stop = at + 1 if strict else text.find("\n{", at + 1)
            piece = text[at : stop if stop >= 0 else len(text)].strip()
            lenient = in_vain <= MOST_LENIENT and not strict
            value = read_structure(piece) if lenient else None
            yield (value, True) if value is not None else (piece, False)
            at = stop if stop >= 0 else len(text)
        elif at == 0 and not strict and (value := read_structure(text)) is not None:
            yield value, True
            return
        else:
            at += 1


def measure_depth(value: Any, most: int = DEEPEST) -> int:
    """Levels of nesting, counted to `most` + 1."""
    level, depth = [value], 0
    while level and depth <= most:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level, depth = [item for item in inner if isinstance(item, Mapping | list)], depth + 1
    return depth


def is_writable(value: Any) -> bool:
    """Whether JSON has a way to write it: it has none for `1e999`, once that is read."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
