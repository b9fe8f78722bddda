"""The calls in a model's text, in forms of open models' chat templates (vLLM's `tool_parsers`,
llama.cpp's `common_chat`, read 2026-11), cut into marks by `_MARKS`. What only shows a form (in
code, beside prose) is no call; a call begun and unreadable is one with its fault, so that none is
lost."""

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from assets.contracts.repair.json_text import load_first, read_structure
from serving.repair.code_calls import LONGEST_CODE, DraftCall, read_code_calls
from warehouse.llm.roles import drop_thinking
from warehouse.patterns import Match, compile_pattern

UNOPENED_END = "</tool_call>"
MOST_LENIENT = 4  # broken calls of a text that are read leniently, which takes up to half a second
_MOST_ELEMENTS = 100  # arguments of a call written as elements


_NAME = r"[^\s<>{}()\[\]\"'`=,;|]{1,128}"
_MARKS = {  # kind -> pattern
    "think": r"<(?:think|thinking|thought|reasoning|seed:think)>|\[THINK\]|◁think▷"
    r"|<\|START_THINKING\|>|<\|channel\|>(?:analysis|final)<\|message\|>",
    "unthink": r"</(?:think|thinking|thought|reasoning|seed:think)>|\[/THINK\]|◁/think▷"
    r"|<\|END_THINKING\|>",
    "harmony": r"(?:<\|start\|>assistant\s?)?(?:<\|channel\|>(?:commentary|analysis)\s?)?"
    rf"\bto=(?P<recipient>{_NAME})[^<{{]{{0,40}}"
    r"(?:<\|(?:channel|constrain)\|>[^<{]{0,40}){0,2}<\|message\|>",
    "function": r"<(?:_{0,2}function|tool_call)(?:=|\(|\s+name=)"
    rf"\"?(?P<function_name>{_NAME})\"?\)?\s*>?",
    "invoke": rf"<(?:[｜A-Za-z]{{1,20}}[:｜])?invoke\s+name=\"(?P<invoked>{_NAME})\"\s*>",
    "elements": r"<(?:invoke|tool_use|use_mcp_tool)>",
    "parameter": r"<(?:[｜A-Za-z]{1,20}[:｜]|__)?parameter(?:=|\s+name=)"
    rf"\"?(?P<parameter_name>{_NAME})\"?" r"(?:\s+string=\"(?P<is_text>true|false)\")?\s*>",
    "end_parameter": r"</(?:[｜A-Za-z]{1,20}[:｜]|__)?parameter>",
    "end": r"</(?:[｜A-Za-z]{1,20}[:｜]|__)?(?:function|invoke|tool_use|use_mcp_tool)>",
    "keyed": r"<\|tools_prefix\|>",
    "call": r"<[|｜]?(?:[A-Za-z]{1,20}[:｜])?(?:tool|TOOL|function|start_function)[_▁]?"
    r"(?:call|CALL)s?(?:[_▁](?:begin|start))?[|｜]?>|\[TOOL_CALLS\]|<\|python_(?:tag|start)\|>|<\|START_ACTION\|>"
    r"|<\|plugin\|>|\bfunctools\b|(?:^|\n)>>>",
    "react": rf"(?:^|\n)\s*\**Action:?\**:?[ \t]*(?P<action>{_NAME}|`{_NAME}`)[ \t]*"
    r"\n\s*\**Action Input:?\**:?",
    "called": rf"\[Called function \"(?P<called>{_NAME})\" with args:",
    "fence": r"(?:```|(?:^|\n) {0,3}~~~)[a-z_]{0,12}",  # ~~~ within a line is no fence
    "stop": r"</(?:[｜A-Za-z]{1,20}[:｜])?(?:tool|TOOL|function)_?(?:call|CALL)s?>|<tool_call\|>"
    r"|</s>|<[|｜][^<>\s\"]{1,40}>|<end_function_call>|\nObservation:",
}  # fmt: skip
_MARK = compile_pattern("|".join(re.sub(r"\(\?P<\w+>", "(?:", one) for one in _MARKS.values()))
# Kinds that prose may show.
_SHOWN = {"function", "invoke", "elements", "call", "keyed", "harmony", "called", "react"}
_AROUND = {"call", "stop", "end", "end_parameter", "fence"}  # kinds of marks around calls
_NAMED = compile_pattern(  # a name before its arguments, whatever stands between
    rf"\s*(?:function<[｜|]tool[▁_]sep[｜|]>)?(?:call:)?(?P<name>{_NAME})\s*(?:\[CALL_ID\][A-Za-z0-9]{{1,40}})?"
    r"(?:\[ARGS\]|<[｜|]tool[▁_]sep[｜|]>|<\|tool_call_argument_begin\|>)?\s*(?:```(?:json)?)?\s*[{<]"
)
_LONGEST_NAMED = 400  # characters of these
_PAIR = compile_pattern(
    r"(?s)\s*<arg_key>\s*([^<>]*?)\s*</arg_key>\s*<arg_value>(.*?)</arg_value>\s*"
)
_TAG = compile_pattern(r"<(\w{1,100})>")
_ESCAPED = re.compile(r'<escape>|<\|"\|>')
_BARE_KEY = re.compile(r"([{,]\s{0,20})([A-Za-z_]\w{0,100})\s{0,20}:")
_SPACES = re.compile(r"\s*+")
_FENCE = re.compile(r"\s{0,20}(?:```(?:json)?)?\s{0,20}")
_FENCE_END = re.compile(r"\s{0,20}```")
_FENCES = re.compile(r"```|~~~")
_TICKS = re.compile(r"(?<!`)`")  # one or more
_BETWEEN = re.compile(r"[\s,;]{0,100}")
_BROKEN = "it breaks off or is no JSON: send the call again, whole"


@dataclass
class _Mark:
    kind: str
    text: str
    names: dict[str, str | None]
    start: int
    end: int


@lru_cache(4096)
def _sort_mark(text: str) -> tuple[str, dict[str, str | None]]:
    """(the kind of a mark, the names in it)."""
    for kind, pattern in _MARKS.items():
        if (match := compile_pattern(pattern).fullmatch(text)) is not None:
            return kind, match.groupdict()
    return "", {}


def _make_mark(match: Match) -> _Mark:
    kind, names = _sort_mark(match[0])
    return _Mark(kind, match[0], names, *match.span())


def read_marked_calls(text: str, *, strict: bool = False) -> tuple[list[Any], str]:
    """(calls that marks announce, each a DraftCall or JSON; the text without thoughts). strict:
    broken JSON is a fault."""
    return _MarkReader(text, 0 if strict else MOST_LENIENT).read()


def cut_marked_calls(text: str) -> tuple[list[Any], str, str]:
    """The same, and the text without the calls and their marks, in which thoughts stay."""
    reader = _MarkReader(text)
    return *reader.read(), reader.cut_calls()


def begins_call(text: str) -> bool:
    """Whether a mark of calls stands in a text, be it one that prose shows."""
    for match in _MARK.finditer(text):
        kind, following = _sort_mark(match[0])[0], text[match.end() : match.end() + 1]
        if match[0] == "functools" or match[0].endswith(">>>"):  # words of Python
            if following in ("", "[") or (match[0].endswith(">>>") and following.isalpha()):
                return True
        elif kind in _SHOWN or (kind == "stop" and match[0].startswith(("<|", "<｜"))):
            return True
    return False


class _MarkReader:
    def __init__(self, text: str, most_lenient: int = MOST_LENIENT) -> None:
        self._text, self._most_lenient = text, most_lenient
        self._marks = [_make_mark(match) for match in _MARK.finditer(text)]
        self._last = {mark.kind: place for place, mark in enumerate(self._marks)}
        self._at = 0  # what is before is read
        self._line, self._ticks = 0, 0  # how far backticks of a line are counted
        self._quoted = False  # that line is a quotation
        self._found: list[Any] = []
        self._spans: list[tuple[int, int]] = []  # of the calls
        self._thought = self._broken = 0  # where the last thought ends; calls that are no JSON
        self._shows = False  # prose shows a form, which is no call
        self._readers: dict[str, Callable[[int, _Mark], int | None]] = {
            "harmony": self._read_behind, "function": self._read_function,
            "invoke": self._read_function, "elements": self._read_elements,
            "call": self._read_body, "keyed": self._read_keyed, "react": self._read_behind,
            "called": self._read_called,
        }  # fmt: skip

    def read(self) -> tuple[list[Any], str]:
        fence, taken, rest, begins = "", 0, list[str](), True
        self._read_unopened(0)
        for place, mark in enumerate(self._marks):
            if mark.start < self._at:
                continue
            if mark.kind == "think" and (end := self._end_thought(place, mark)) is not None:
                rest.append(self._text[taken : mark.start])
                begins = begins and not (self._found or rest[-1].strip())
                self._at = taken = self._thought = end
                if begins:  # nothing but thoughts is before it
                    self._read_unopened(end)
            elif mark.kind == "unthink":  # the prompt had opened it
                self._found, rest, self._spans, fence, begins = [], [], [], "", True
                self._at = taken = self._thought = mark.end
                self._read_unopened(mark.end)
            elif mark.kind == "fence":
                sign = mark.text.strip()[:3]  # one within another is its text
                fence = "" if fence == sign else fence or sign
            elif mark.kind in self._readers:
                if mark.kind in _SHOWN and self._is_shown(mark, bool(fence)):
                    self._shows = True
                    continue
                read = self._readers[mark.kind](place, mark)
                if read is not None:
                    self._at = max(read, mark.end)
                    self._spans.append((mark.start, self._at))
        rest.append(self._text[taken:])
        return self._found, "" if self._shows else "".join(rest)

    def cut_calls(self) -> str:
        """What is between the calls that were read, without the marks that touch them."""
        begins = [0, *(end for _, end in self._spans)]
        ends = [*(begin for begin, _ in self._spans), len(self._text)]
        return "".join(self._trim_marks(*of) for of in zip(begins, ends, strict=True))

    def _trim_marks(self, begin: int, end: int) -> str:
        places = (bisect_left(self._marks, at, key=lambda mark: mark.start) for at in (begin, end))
        inner = self._marks[slice(*places)]
        around = [mark for mark in inner if mark.kind in _AROUND and mark.start >= self._thought]
        for mark in around if begin else ():
            if self._text[begin : mark.start].strip() or "Observation" in mark.text:
                break
            begin = mark.end
        for mark in reversed(around if end < len(self._text) else ()):
            if mark.start < begin or self._text[mark.end : end].strip():
                break
            end = mark.start
        return self._text[begin:end]

    def _end_thought(self, place: int, mark: _Mark) -> int | None:
        """Where a thought ends; None where it never does: then calls may stand in it."""
        harmony = mark.text.endswith("<|message|>")
        end = self._find(place + 1, "stop" if harmony else "unthink")
        return self._marks[end].end if end is not None else len(self._text) if harmony else None

    def _find(self, place: int, *kinds: str) -> int | None:
        if place > max(self._last.get(kind, -1) for kind in kinds):
            return None
        return next(at for at in range(place, len(self._marks)) if self._marks[at].kind in kinds)

    def _find_bound(self, place: int) -> int:
        """Where what a mark begins ends at last: at the next mark of a call or of an end."""
        end = self._find(
            place + 1, "stop", "call", "function", "invoke", "harmony", "react", "think"
        )
        return self._marks[end].start if end is not None else len(self._text)

    def _is_shown(self, mark: _Mark, in_fence: bool) -> bool:
        """Whether prose shows a form: quoted, in inline code, or in a fence with words around."""
        if in_fence or mark.kind == "react":  # which begins a line
            return in_fence and self._has_prose
        line = max(self._text.rfind("\n", self._line, mark.start) + 1, self._at)
        if line > self._line or not self._line:
            self._line, self._ticks = line, 0
            self._quoted = self._text.startswith("> ", line)
        self._ticks += len(_TICKS.findall(self._text, self._line, mark.start))
        self._line = mark.start
        return self._quoted or self._ticks % 2 == 1

    @cached_property
    def _has_prose(self) -> bool:
        return any(piece.strip() for piece in _FENCES.split(drop_thinking(self._text))[::2])

    def _read_arguments(self, place: int, begin: int) -> tuple[Any, int]:
        """(JSON, else the text up to the next mark; where it ends)."""
        value, stop = load_first(self._text, begin)
        if stop is not None and self._text.startswith("<", _skip_spaces(self._text, stop)):
            return value, stop
        end = self._find_bound(place)
        if stop is not None and not self._text[stop:end].strip():
            return value, stop
        return self._text[begin:end].strip(), end

    def _read_unopened(self, begin: int) -> None:
        """Calls as JSON before a closing mark, whose opening marks the model left out (Qwen)."""
        while self._text.startswith("{", begin := _skip_spaces(self._text, begin)):
            value, end = load_first(self._text, begin)
            stop = len(self._text) if end is None else _skip_spaces(self._text, end)
            is_call = isinstance(value, dict) and {"name", "arguments"} <= value.keys()
            if not (is_call and self._text.startswith(UNOPENED_END, stop)):
                return
            self._found.append(value)
            self._at = stop + len(UNOPENED_END)
            self._spans.append((begin, self._at))
            begin = self._at

    def _read_behind(self, place: int, mark: _Mark) -> int:
        value, end = self._read_arguments(place, mark.end)
        name = mark.names.get("recipient") or mark.names.get("action")
        self._add(str(name).strip("`"), value)
        return end

    def _read_called(self, place: int, mark: _Mark) -> int | None:
        """Of models that copy how a gateway writes earlier calls down (Gemini 3.5, GPT 5.4)."""
        value, end = load_first(self._text, mark.end)
        if end is None or not self._text.startswith("]", _skip_spaces(self._text, end)):
            return None
        self._add(str(mark.names["called"]), value)
        return _skip_spaces(self._text, end) + 1

    def _read_function(self, place: int, mark: _Mark) -> int | None:
        """`<function=NAME>` or `<invoke name="NAME">` with parameters, or JSON, in it."""
        name = str(mark.names.get("function_name") or mark.names.get("invoked"))
        begin = _skip_spaces(self._text, mark.end)
        if self._text.startswith("{", begin):
            value, end = self._read_arguments(place, begin)
            self._add(name, value)
            return end
        following = self._marks[place + 1] if place + 1 < len(self._marks) else None
        closed = self._text[mark.end - 1] == ">"
        if following is None or following.start != begin or not closed:
            return None
        if following.kind in ("end", "stop"):
            self._add(name, {})
            return following.end
        return self._read_parameters(place, name) if following.kind == "parameter" else None

    def _read_parameters(self, place: int, name: str) -> int:
        values: dict[str, Any] = {}
        at = place + 1
        while at < len(self._marks) and self._marks[at].kind == "parameter":
            opened = self._marks[at]
            end = self._find_parameter_end(at)
            if end is None:
                self._add(name, self._text[self._marks[place].start :], fault=_BROKEN)
                return len(self._text)
            closed = self._marks[end]
            value: Any = _trim_lines(self._text[opened.end : closed.start])
            if opened.names["is_text"] == "false":
                value = _read_json_value(value)
            key = str(opened.names["parameter_name"])
            if key in values:
                earlier = values[key]
                value = [*earlier, value] if isinstance(earlier, list) else [earlier, value]
            values[key] = value
            at = end + 1 if closed.kind == "end_parameter" else end
        self._add(name, values)
        closed_by = at if at < len(self._marks) and self._marks[at].kind == "end" else at - 1
        return self._marks[closed_by].end

    def _find_parameter_end(self, place: int) -> int | None:
        """The mark that ends a value: `</parameter>` before another parameter or the end of the
        call, for the value may hold such marks; where it is missing, what comes next."""
        loose: int | None = None
        for at in range(place + 1, len(self._marks)):
            mark = self._marks[at]
            begins_line = self._text[mark.start - 1] == "\n"
            if mark.kind == "end_parameter" and self._ends_parameter(at):
                return at
            if mark.kind in ("parameter", "end") and begins_line:
                loose = at if loose is None else loose
                if mark.kind == "parameter":
                    return loose
            if mark.kind in ("function", "invoke") and loose is not None:
                return loose
        return loose

    def _ends_parameter(self, place: int) -> bool:
        following = self._marks[place + 1] if place + 1 < len(self._marks) else None
        between = self._text[self._marks[place].end : following.start if following else None]
        if between.strip():
            return False
        return following is None or following.kind in ("parameter", "end", "stop")

    def _read_elements(self, place: int, mark: _Mark) -> int | None:
        """`<tool_name>f</tool_name><parameters><city>Rome</city></parameters>`."""
        closing = self._find(place + 1, "end", "elements")
        end = self._marks[closing].start if closing is not None else len(self._text)
        named = _read_elements(self._text[mark.end : end])
        name = (named.get("tool_name") or named.get("name") or "").strip()
        keys = [key for key in ("parameters", "arguments", "input") if key in named]
        given = named[keys[0]].strip() if keys else ""
        if not name:
            return None
        values = _read_elements(given) if given.startswith("<") else given
        self._add(name, values, fault="" if closing is not None else _BROKEN)
        return end

    def _read_keyed(self, place: int, mark: _Mark) -> int | None:
        """`[{"f": {arguments}}]`."""
        value, end = load_first(self._text, mark.end)
        for item in value if isinstance(value, list) else []:
            for name, arguments in item.items() if isinstance(item, dict) else ():
                self._add(name, arguments)
        return end

    def _read_body(self, place: int, mark: _Mark) -> int | None:
        """What follows a mark of calls: JSON, a name before JSON, GLM's pairs, Python."""
        text, end = self._text, None
        named = _NAMED.match(text[mark.end : mark.end + _LONGEST_NAMED])
        if named and text.startswith(("{", "<arg_key>"), mark.end + named.end() - 1):
            return self._read_named(place, mark.end + named.end() - 1, named)
        if mark.text.endswith(">>>"):  # Python's prompt
            return None
        fence = _FENCE.match(text, mark.end)
        begin = fence.end() if fence else mark.end
        while text.startswith(("{", "["), begin):
            value, stop = load_first(text, begin)
            if stop is None:
                return self._read_code(place, begin) or self._read_broken(place, begin)
            self._found.append(value)
            end = stop = self._close_fence(text[mark.end : begin][:60], stop)
            between = _BETWEEN.match(text, stop)
            begin = between.end() if between else stop
        return end if end is not None else self._read_code(place, begin)

    def _read_named(self, place: int, begin: int, named: Match) -> int:
        """A name, and its arguments as JSON, as pairs of GLM or as Gemma writes them."""
        name, end = named["name"], self._find_bound(place)
        body = self._text[begin:end]
        if body.startswith("<"):
            values: Any = {key: _trim_lines(value) for key, value in _PAIR.findall(body)}
            self._add(name, values, "" if body.rstrip().endswith("</arg_value>") else _BROKEN)
            return end
        value, stop = load_first(self._text, begin)
        self._add(name, _read_escaped(body) if stop is None else value)
        return end if stop is None else self._close_fence(named[0], stop)

    def _close_fence(self, before: str, end: int) -> int:
        """Behind the end of a fence that was opened before the JSON that ends here."""
        closed = _FENCE_END.match(self._text, end) if "```" in before else None
        return closed.end() if closed else end

    def _read_code(self, place: int, begin: int) -> int | None:
        end = self._find_bound(place)
        calls = read_code_calls(self._text[begin:end])
        self._found += calls
        return end if calls else None

    def _read_broken(self, place: int, begin: int) -> int | None:
        """JSON that is not: read leniently, or a call with a fault."""
        end = self._find_bound(place)
        body = self._text[begin:end].strip()
        self._broken += 1
        value = read_structure(body) if self._broken <= self._most_lenient else None
        if value is not None:
            self._found.append(value)
        elif '"' in body or "'" in body:
            self._add("", body, fault=_BROKEN)
        else:
            return None
        return end

    def _add(self, name: str, arguments: Any, fault: str = "") -> None:
        self._found.append(DraftCall(name, arguments, None, fault))


def read_written_arguments(text: str) -> dict[str, Any] | None:
    """Arguments alone in the form of a template: parameters of XML, pairs, `a=1, b=2`."""
    if len(text) > LONGEST_CODE or text.lstrip().startswith(("{", "[")):
        return None
    for form in ("<function=f>\n{}\n</function>", "<tool_call>f\n{}\n</tool_call>", "f({})"):
        written = form.replace("{}", text.strip())
        calls = read_code_calls(written) if form == "f({})" else read_marked_calls(written)[0]
        read = calls[0] if len(calls) == 1 and isinstance(calls[0], DraftCall) else None
        if read and isinstance(read.arguments, dict) and read.arguments and not read.fault:
            return read.arguments
    return None


def _read_elements(text: str) -> dict[str, str]:
    elements: dict[str, str] = {}
    at = 0
    for tag in _TAG.finditer(text):
        if tag.start() < at:
            continue
        end = text.find(f"</{tag[1]}>", tag.end())
        if end < 0 or len(elements) >= _MOST_ELEMENTS:
            break
        elements[tag[1]] = _trim_lines(text[tag.end() : end])
        at = end
    return elements


def _trim_lines(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")


def _skip_spaces(text: str, at: int) -> int:
    spaces = _SPACES.match(text, at)
    return spaces.end() if spaces else at


def _read_json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_escaped(text: str) -> Any:
    """Gemma's `{city:<escape>Rome<escape>,days:3}`: an object, else the text as it is."""
    pieces = _ESCAPED.split(text)
    if len(pieces) == 1:
        return text.strip()
    made = [
        json.dumps(piece) if place % 2 else _BARE_KEY.sub(r'\1"\2":', piece)
        for place, piece in enumerate(pieces)
    ]
    return _read_json_value("".join(made).strip())
