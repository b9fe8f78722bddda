"""A draft call in any shape that models and clients write: which tool, which arguments.

Arguments as text become a JSON value, in the order of what loses least: JSON -> text in text, code
fence -> raw line breaks -> NaN -> several values -> cut off -> Python literals, comments, commas ->
json-repair, whose values must all be in the text.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.repair.values import WrittenFloat
from warehouse.llm.json_answers import find_fenced, find_json, repair_json, strip_fence
from warehouse.patterns import Match, compile_pattern

_NAMES = ("name", "tool_name", "tool", "function_name", "function", "recipient_name")
_ARGUMENTS = ("arguments", "input", "parameters", "args", "params", "tool_input", "kwargs")
_IDS = ("call_id", "id", "tool_call_id")
_MOST = 200  # drafts of one answer
_TAG = compile_pattern(r"(?s)<tool_call>(.*?)(?:</tool_call>|$)")
_PYTHON = compile_pattern(r"\s*[A-Za-z_][\w.\-:/]*\s*\(")
LONGEST = 4_000_000  # characters of a draft; its arguments have their own limit
LONGEST_ARGUMENTS = 2_000_000  # characters of one call's arguments
DEEPEST = 60  # levels of nesting
_LOOSE = 100_000  # characters that the lenient readers are given
_MARK = re.compile(r'"|//|/\*|#|,')
_SPACES = re.compile(r"\s*")
_CUT_SCALAR = re.compile(r"[\w.+\-]$")
_WHOLE_WORD = compile_pattern(r"[:\[,]\s*(?:true|false|null)$")
_LAST_NAME = compile_pattern(r'(,\s*|\{\s*)"(?:[^"\\]|\\.)*"\s*:\s*$')
_LAST_TEXT = compile_pattern(r'(,\s*|\{\s*)"(?:[^"\\]|\\.)*"$')
_BETWEEN = re.compile(r"[\s,;]*")
_JSON_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class DraftCall:
    """One call as it was written. name: "" where none was given. arguments: text, or a JSON
    value."""

    name: str
    arguments: Any
    id: str | None = None


def read_drafts(value: Any) -> list[DraftCall]:
    """Every call in a draft: OpenAI (`tool_calls`, `function_call`, Responses), Anthropic
    (`tool_use`), MCP (`tools/call`), `{name, arguments}`, a list of these, or text that holds
    them as JSON or as `name(parameter=value)`. [] where no call is in it. Never raises."""
    try:
        return list(_iterate_drafts(value, 0))[:_MOST]
    except (RecursionError, ValueError, MemoryError):
        return []


def _iterate_drafts(value: Any, depth: int) -> Iterator[DraftCall]:
    if depth > 6:
        return
    if isinstance(value, DraftCall):
        yield value
    elif isinstance(value, str):
        yield from _read_text(value[:LONGEST], depth)
    elif isinstance(value, list | tuple):
        for item in value[:_MOST]:
            if isinstance(item, DraftCall | Mapping):
                yield from _iterate_drafts(item, depth + 1)
    elif isinstance(value, Mapping):
        yield from _read_object(value, depth)


def _read_object(value: Mapping[str, Any], depth: int) -> Iterator[DraftCall]:
    for key in ("tool_calls", "output", "choices", "content"):
        if isinstance(value.get(key), list):
            yield from _iterate_drafts(value[key], depth + 1)
            return
    for key in ("message", "function_call", "tool_call"):
        if isinstance(value.get(key), Mapping):
            yield from _iterate_drafts(value[key], depth + 1)
            return
    call_id = next((value[key] for key in _IDS if isinstance(value.get(key), str)), None)
    if value.get("method") == "tools/call" and isinstance(value.get("params"), Mapping):
        value = value["params"]
    if isinstance(value.get("function"), Mapping):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    key_of_arguments = next((key for key in _ARGUMENTS if key in value), None)
    if name is not None or key_of_arguments is not None:
        yield DraftCall(name or "", value[key_of_arguments] if key_of_arguments else {}, call_id)


def _read_text(text: str, depth: int) -> Iterator[DraftCall]:
    pieces = _TAG.findall(text) or find_fenced(text) or [text]
    for part in pieces[:_MOST]:
        drafts = list(_read_part(part, depth))
        yield from drafts


def _read_part(part: str, depth: int) -> Iterator[DraftCall]:
    whole = part.strip()
    try:
        yield from _iterate_drafts(json.loads(whole), depth + 1)
        return
    except (ValueError, RecursionError):
        pass
    if _PYTHON.match(whole):
        yield from _read_python(whole)
        return
    values = [item.value for item, _ in zip(find_json(whole), range(_MOST), strict=False)
            if not item.in_broken]  # fmt: skip
    calls = [draft for value in values for draft in _iterate_drafts(value, depth + 1)]
    if not calls and whole[:1] in ("{", "["):
        repaired = repair_json(whole) if len(whole) <= 100_000 else []
        calls = [draft for value in repaired for draft in _iterate_drafts(value, depth + 1)]
    yield from calls


def _read_python(text: str) -> Iterator[DraftCall]:
    """`name(parameter=value)`, as some models write calls."""
    try:
        call = ast.parse(text[:100_000], mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    if (
        isinstance(call, ast.Call)
        and not call.args
        and all(keyword.arg for keyword in call.keywords)
    ):
        try:
            arguments = {
                str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords
            }
        except (ValueError, TypeError, RecursionError, MemoryError):
            return
        yield DraftCall(ast.unparse(call.func), arguments)


@dataclass(frozen=True)
class ParsedArguments:
    """values: what the text holds, one or several. cut: the last value where the text broke off
    inside of it: it may go on. fault: why nothing was read."""

    values: list[Any] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    cut: str | None = None
    fault: str = ""
    too_large: bool = False


def parse_arguments(text: str) -> ParsedArguments:
    """What a text of arguments says. Never raises."""
    if len(text) > LONGEST_ARGUMENTS:
        fault = f"{len(text):,} characters, at most {LONGEST_ARGUMENTS:,} are read"
        return ParsedArguments(fault=fault, too_large=True)
    if not text.strip():
        return ParsedArguments([{}], ["no arguments are an empty object"])
    steps: list[str] = []
    for _ in range(4):
        value, loaded = _load_strict(text)
        if not loaded:
            break
        if not isinstance(value, str):
            return ParsedArguments([value], steps)
        steps.append("the arguments were JSON text within JSON text: read it")
        text = value
    fenced = strip_fence(text)
    if fenced is not None:
        text, steps = fenced, [*steps, "took the arguments out of a code fence"]
    for read in (_load_raw, _load_several, _load_cut, _load_lenient):
        parsed = read(text)
        if parsed is not None:
            return ParsedArguments(parsed.values, [*steps, *parsed.steps], parsed.cut)
    return ParsedArguments(steps=steps, fault="no JSON object can be read out of the text")


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


def _load_strict(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text, parse_float=WrittenFloat, parse_constant=_refuse_constant), True
    except (ValueError, RecursionError):
        return None, False


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _load_raw(text: str) -> ParsedArguments | None:
    """Line breaks in texts as they are, and the numbers that JSON does not have."""
    odd: list[str] = []
    try:
        value = json.loads(text, strict=False, parse_float=WrittenFloat, parse_constant=odd.append)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        return None
    if odd:
        return ParsedArguments(
            [value], [f"{name} is no JSON: read as null" for name in dict.fromkeys(odd)]
        )
    return ParsedArguments([value], ["escaped the line breaks in a text"])


def _load_several(text: str) -> ParsedArguments | None:
    """Objects one after the other."""
    decoder = json.JSONDecoder(parse_float=WrittenFloat, parse_constant=_refuse_constant)
    values, at = [], 0
    while at < len(text) and len(values) < 100:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        values.append(value)
    if len(values) > 1 and all(value == values[0] for value in values):
        return ParsedArguments(
            values[:1], ["the same arguments stood there more than once: took them once"]
        )
    return ParsedArguments(values) if len(values) > 1 else None


def _load_cut(text: str) -> ParsedArguments | None:
    """A text that ends before it closes what it opened."""
    whole = text.strip()
    if not whole.startswith("{"):
        return None
    closers, in_string = _list_open(whole)
    if not closers:
        return None
    cut, body = None, whole
    if in_string:
        body = (whole[:-1] if ((len(whole) - len(whole.rstrip("\\"))) % 2 == 1) else whole) + '"'
        cut = "text"
    elif _CUT_SCALAR.search(whole) and not _WHOLE_WORD.search(whole):
        cut = "value"
    elif whole[-1] in ",:":
        cut = "name"  # one more was to come
    body = body.rstrip()[:-1] if body.rstrip().endswith(",") else body
    body = _LAST_NAME.sub(_keep_brace, body)
    value, loaded = _load_strict(body + closers)
    if not loaded or not isinstance(value, dict):
        # The name of an argument was cut, or has no value: what stands before it is whole.
        body = _LAST_TEXT.sub(_keep_brace, body)
        value, loaded = _load_strict(body + closers)
        if not loaded or not isinstance(value, dict):
            return None
        cut = "name"
    last = _find_last(value) if cut in ("text", "value") else None
    step = "the text broke off: closed what it had opened"
    return ParsedArguments([value], [step], cut if cut == "name" else last)


def _keep_brace(match: Match) -> str:
    return match[0][:1].strip(",")


def _list_open(text: str) -> tuple[str, bool]:
    """(the brackets that close what a text opened, whether it ends within quotes)."""
    stack: list[str] = []
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]" and (not stack or stack.pop() != char):
            return "", False
    return "".join(reversed(stack)), quoted


def _find_last(value: Any) -> str:
    """The path of the value that stands last."""
    path = "$"
    while isinstance(value, dict | list) and value:
        name = len(value) - 1 if isinstance(value, list) else list(value)[-1]
        path += f"[{name}]" if isinstance(value, list) else f".{name}"
        value = value[name]
    return path


def _load_lenient(text: str) -> ParsedArguments | None:
    text = text.strip()
    if len(text) > _LOOSE or _CUT_SCALAR.search(text):  # `-21.` would be read as -21.0
        return None
    bare = _drop(text, _find_comment_end)
    for step, changed in (
        ("took comments and commas out of the JSON", _drop(bare, _find_comma_end)),
        ("took commas out of the JSON", _drop(text, _find_comma_end)),
    ):
        value, loaded = _load_strict(changed)
        if loaded and isinstance(value, dict):
            return ParsedArguments([value], [step])
    value = _load_python(bare) or _load_python(text)
    if isinstance(value, dict):
        return ParsedArguments([value], ["the arguments were a Python literal: read it"])
    values = [item for item in repair_json(text) if isinstance(item, dict)]
    if len(values) == 1 and all(_stands_in(leaf, text) for leaf in _list_leaves(values[0])):
        return ParsedArguments(values, ["repaired the JSON's punctuation"])
    return None


def _drop(text: str, find_end: Callable[[str, int, str, int], int]) -> str:
    """The text without the marks outside of strings whose end is found (-1: it is not one)."""
    pieces, start, at, closes = [], 0, 0, True
    last_close = text.rfind("*/")
    while mark := _MARK.search(text, at):
        begin, at = mark.span()
        if mark[0] == '"':
            # Behind a string that does not close, no other does: one scan goes to the end.
            end = _find_string_end(text, at) if closes else -1
            closes, at = end >= 0, max(end, at)
        elif (end := find_end(text, begin, mark[0], last_close)) >= 0:
            pieces.append(text[start:begin])
            start = at = end
    return "".join([*pieces, text[start:]])


def _find_string_end(text: str, at: int) -> int:
    """Behind the quote that closes a string begun before `at`; -1 where none does."""
    while (quote := text.find('"', at)) >= 0:
        slashes = quote - len(text[at:quote].rstrip("\\")) - at
        at = quote + 1
        if slashes % 2 == 0:
            return at
    return -1


def _find_comment_end(text: str, begin: int, mark: str, last_close: int) -> int:
    if mark == "/*":
        return text.find("*/", begin + 2) + 2 if begin + 2 <= last_close else -1
    before = text[begin - 1] if begin else ""
    if mark == "//" or (mark == "#" and (before.isspace() or before in set(",{["))):
        end = text.find("\n", begin)
        return end if end >= 0 else len(text)
    return -1


def _find_comma_end(text: str, begin: int, mark: str, _: int) -> int:
    spaces = _SPACES.match(text, begin + 1) if mark == "," else None
    closed = spaces is not None and text[spaces.end() : spaces.end() + 1] in ("}", "]")
    return begin + 1 if closed else -1


def _load_python(text: str) -> Any:
    """A literal of Python that JSON can hold, else None."""
    try:
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):  # JSON's words within Python's quotes
            if isinstance(node, ast.Name) and node.id not in _JSON_WORDS:
                return None
        value = ast.literal_eval(_JsonWords().visit(tree))
        return value if _is_json(value) else None
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


class _JsonWords(ast.NodeTransformer):
    """`true` as True, and so on."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_JSON_WORDS[node.id])


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    finite = not isinstance(value, float) or math.isfinite(value)
    return finite and isinstance(value, str | int | float | bool | None)


def _list_leaves(value: Any) -> list[Any]:
    stack, leaves = [value], []
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            stack += item
        else:
            leaves.append(item)
    return leaves


def _stands_in(leaf: Any, text: str) -> bool:
    """Whether a value stands in the text it was read from, escapes aside."""
    if not isinstance(leaf, str):
        return True
    plain = re.sub(r'[\\"\s]', "", leaf)
    return plain in re.sub(r'[\\"\s]', "", text.replace("\\n", "").replace("\\t", ""))
