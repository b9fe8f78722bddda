"""Structure that a model wrote as text: the arguments of a call, or a list or object within them.

The readers come in the order of what loses least: JSON -> text in text, code fence -> raw line
breaks -> NaN -> several objects -> one among words -> cut off -> Python literals, comments, commas
-> json-repair. Of the last, every word of the text must stand in what it makes, and the reverse.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from warehouse.llm.json_answers import repair_json, strip_fence
from warehouse.llm.roles import drop_thinking
from warehouse.patterns import Match, compile_pattern

LONGEST_ARGUMENTS = 2_000_000  # characters of one call's arguments
_LOOSE = 100_000  # characters that the lenient readers are given
_MOST_VALUES = 100  # objects in one text
_MARK = re.compile(r'"|//|/\*|#|,')
_SPACES = re.compile(r"\s*")
_CUT_SCALAR = re.compile(r"[\w.+\-]$")
_WHOLE_WORD = compile_pattern(r"[:\[,]\s*(?:true|false|null)$")
_LAST_NAME = compile_pattern(r'(,\s*|\{\s*)"(?:[^"\\]|\\.)*"\s*:\s*$')
_LAST_TEXT = compile_pattern(r'(,\s*|\{\s*)"(?:[^"\\]|\\.)*"$')
_TOKEN = re.compile(r"</?[\w:|]{1,40}>|<[|｜][^<>]{1,60}[|｜]>")  # of a model's template
_REMAINDER = compile_pattern(r"[{\[]|[\"']\s*:|[\w\"']\s*=\s*\S|[\]}]\s*[^\s\]}]")
_ESCAPE = re.compile(r"\\[nrtbf\"'\\/]")
_NOTHING = ("none", "undefined", "nil")
_JSON_WORDS = {"true": True, "false": False, "null": None}
_SIGNS_OF_STRUCTURE = "[]{}\"'`"
UNREADABLE = "no JSON object can be read out of the text"


class WrittenFloat(float):
    """A number with the text that it was written as: as a text, `3.10` is not `3.1`."""

    written: str

    def __new__(cls, written: str) -> "WrittenFloat":
        number = super().__new__(cls, written)
        number.written = written
        return number

    def __deepcopy__(self, _: Any) -> "WrittenFloat":
        return self


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
    if text.strip().lower() in ("", *_NOTHING):
        return ParsedArguments([{}], ["no arguments are an empty object"])
    steps: list[str] = []
    for _ in range(4):
        try:
            value, loaded = _load_strict(text)
        except NameTwice as error:
            return ParsedArguments(steps=steps, fault=str(error))
        if not loaded:
            break
        if not isinstance(value, str):
            return ParsedArguments([value], steps)
        steps.append("the arguments were JSON text within JSON text: read it")
        text = value
    try:
        parsed = _read_leniently(text, (dict,))
    except NameTwice as error:
        return ParsedArguments(steps=steps, fault=str(error))
    if parsed is None:
        return ParsedArguments(steps=steps, fault=UNREADABLE)
    return ParsedArguments(parsed.values, [*steps, *parsed.steps], parsed.cut)


def read_structure(text: str) -> Any:
    """The list or object that a text is, all of it; None where it is none. Objects that follow each
    other are a list."""
    text = text.strip()
    if not text.startswith(("{", "[", "(", "`", '"')) or len(text) > _LOOSE:
        return None
    try:
        value, loaded = _load_strict(text)
        if isinstance(value, str) and value[:1] in ("{", "["):  # text within text
            value, loaded = _load_strict(value)
        if loaded:
            return value if isinstance(value, dict | list) else None
        parsed = _read_leniently(text, (dict, list))
    except NameTwice:
        return None
    if parsed is None or parsed.cut:
        return None
    return parsed.values[0] if len(parsed.values) == 1 else parsed.values


def load_first(text: str, at: int) -> tuple[Any, int | None]:
    """(the JSON value that begins at a place of a text, where it ends; None where none does)."""
    spaces = _SPACES.match(text, at)
    at = spaces.end() if spaces else at
    piece = text[at : at + _WINDOW]
    try:
        value, end = _DECODER.raw_decode(piece)
        if end < len(piece) or len(piece) < _WINDOW:
            return value, at + end
    except json.JSONDecodeError as error:
        # The decoder counts the lines before an error: in a text of 200 kB with a broken value at
        # each mark that took seconds. What a longer piece would not read either is told here.
        cut_off = error.msg.startswith("Unterminated") or error.pos > len(piece) - _LONGEST_TOKEN
        if len(piece) < _WINDOW or not cut_off:
            return None, None
    except (ValueError, RecursionError, NameTwice):
        return None, None
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError, NameTwice):
        return None, None


def _read_leniently(text: str, kinds: tuple[type, ...]) -> ParsedArguments | None:
    steps: list[str] = []
    if not text.lstrip().startswith(("{", "[", "(", "`")):  # there it would be a value's own
        _, thought, behind = drop_thinking(text).rpartition("</think>")
        if thought or len(behind) < len(text):
            text, steps = behind, ["took the arguments from behind the thought"]
    fenced = strip_fence(text)
    if fenced is not None:
        text, steps = fenced, [*steps, "took the arguments out of a code fence"]
    for read in (_load_raw, _load_amid_words, _load_cut, _load_lenient):
        parsed = read(text, kinds)
        if parsed is not None:
            return ParsedArguments(parsed.values, [*steps, *parsed.steps], parsed.cut)
    return None


_WINDOW = 4096  # characters that are tried first
_LONGEST_TOKEN = 16  # characters of a constant or an escape that the window may cut


class NameTwice(Exception):
    """An object has one name twice, with two values: one of them would be lost."""


def _build_object(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members):
        for name, value in members:
            if made[name] != value:
                raise NameTwice(f"{name[:80]!r} stands there twice, with two values: send one")
    return made


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_OPTIONS: Any = {"parse_float": WrittenFloat, "object_pairs_hook": _build_object}
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, strict=False, **_OPTIONS)


def _load_strict(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text, parse_constant=refuse_constant, **_OPTIONS), True
    except (ValueError, RecursionError):
        return None, False


def _load_raw(text: str, kinds: tuple[type, ...]) -> ParsedArguments | None:
    """Line breaks in texts as they are, and the numbers that JSON does not have."""
    odd: list[str] = []
    try:
        value = json.loads(text, strict=False, parse_constant=odd.append, **_OPTIONS)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        return None
    steps = [f"{name} is no JSON: read as null" for name in dict.fromkeys(odd)]
    if not odd and not _load_strict(text)[1]:
        steps = ["escaped the line breaks in a text"]
    return ParsedArguments([value], steps)


def _load_amid_words(text: str, kinds: tuple[type, ...]) -> ParsedArguments | None:
    """Objects one after the other, with words around them that are no arguments."""
    values: list[Any] = []
    words: list[str] = []
    end = 0
    while (at := text.find("{", end)) >= 0 and len(values) < _MOST_VALUES:
        words.append(text[end:at])
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        values.append(value)
    words = [_TOKEN.sub("", piece).strip(" \n\r\t,;") for piece in [*words, text[end:]]]
    if not values or any(_REMAINDER.search(piece) for piece in words):
        return None
    if any(words) and list in kinds:  # a value is all of its text
        return None
    steps = ["left out what stood around the arguments"] if any(words) else []
    if len(values) > 1 and all(value == values[0] for value in values):
        steps.append("the same arguments stood there more than once: took them once")
        return ParsedArguments(values[:1], steps)
    full = [value for value in values if value]
    if len(values) > 1 and len(full) == 1:  # `{}` of a server that had begun with nothing
        return ParsedArguments(full, [*steps, "left out the empty arguments beside these"])
    return ParsedArguments(values, steps or ["left out the marks around the arguments"])


def _load_cut(text: str, _: tuple[type, ...]) -> ParsedArguments | None:
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


def _load_lenient(text: str, kinds: tuple[type, ...]) -> ParsedArguments | None:
    text = text.strip()
    if len(text) > _LOOSE or _CUT_SCALAR.search(text):  # `-21.` would be read as -21.0
        return None
    bare = _drop(text, _find_comment_end)
    for step, changed in (
        ("took comments and commas out of the JSON", _drop(bare, _find_comma_end)),
        ("took commas out of the JSON", _drop(text, _find_comma_end)),
    ):
        value, loaded = _load_strict(changed)
        if loaded and isinstance(value, kinds):
            return ParsedArguments([value], [step])
    value = _load_python(bare)
    value = _load_python(text) if value is None else value
    if isinstance(value, kinds):
        return ParsedArguments([value], ["the arguments were a Python literal: read it"])
    made = repair_json(bare)  # a list also where the text is no list
    values = [made] if list in kinds and text.startswith("[") else made
    if len(values) == 1 and isinstance(values[0], kinds) and _is_complete(values[0], bare):
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
    """A literal of Python that JSON can hold, a tuple as a list; else None."""
    try:
        return evaluate_literal(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def evaluate_literal(node: ast.expr) -> Any:
    """The value of a literal of Python, JSON's words within it included. Raises ValueError,
    TypeError."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in _JSON_WORDS:
            raise ValueError(f"{part.id} is a name, not a value")
        if isinstance(part, ast.Dict):
            pairs = zip(part.keys, part.values, strict=True)
            _build_object([(str(key.value), ast.dump(value)) for key, value in pairs
                           if isinstance(key, ast.Constant)])  # fmt: skip
    return as_json(ast.literal_eval(_JsonWords().visit(node)))


class _JsonWords(ast.NodeTransformer):
    """`true` as True, and so on; a set as a list in its order."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_JSON_WORDS[node.id])

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return ast.List([self.visit(item) for item in node.elts], ast.Load())


def as_json(value: Any) -> Any:
    """A value of Python as JSON holds it. Raises ValueError where it has none."""
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    if finite and isinstance(value, str | int | float | bool | None):
        return value
    raise ValueError(f"{type(value).__name__} is no JSON")


def _is_complete(value: Any, text: str) -> bool:
    """Whether a value holds every word of the text that it was read from, in order, none besides,
    and no sign of structure within a text of its own."""
    try:
        leaves = list(_list_leaves(value))
    except RecursionError:
        return False
    texts = [leaf for leaf in leaves if isinstance(leaf, str)]
    if texts.count("") > text.count('""') + text.count("''"):  # a value that nobody wrote
        return False
    if any(leaf[:1] in _SIGNS_OF_STRUCTURE or leaf[-1:] in _SIGNS_OF_STRUCTURE
           for leaf in texts if leaf):  # fmt: skip
        return False
    written = " ".join(leaf if isinstance(leaf, str) else json.dumps(leaf) for leaf in leaves)
    return _list_words(written) == _list_words(_ESCAPE.sub(" ", text))


def _list_words(text: str) -> list[str]:
    words = re.findall(r"\w+", text.casefold())
    return ["null" if word == "none" else word for word in words]


def _list_leaves(value: Any) -> Iterator[Any]:
    """Names and values, in the order of the text."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _list_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_leaves(item)
    else:
        yield value
