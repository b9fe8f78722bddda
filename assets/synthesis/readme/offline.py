"""The tools of a README without any model: lists, tables and headings of a section about tools."""

import re
from collections.abc import Iterator

from assets.synthesis.readme.answer import (
    MOST_PARAMETERS,
    MOST_TOOLS,
    ReadmeParameter,
    ReadmeTool,
    ReadmeTools,
)

_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_ABOUT_TOOLS = re.compile(r"\b(tools?|functions)\b", re.IGNORECASE)
_ITEM = re.compile(r"(\s{0,12})(?:[-*+]|\d{1,3}[.)])\s+(.{1,3000})$")
_ROW = re.compile(r"\s{0,3}\|(.{1,3000})\|\s*$")
_NAMED = re.compile(
    r"(?:\*\*|__)?`([^`\s(]{2,80})(\([^`]{0,300})?`(?:\*\*|__)?"
    r"|(?:\*\*|__)([^*_\s`(][^*\s`(]{1,79}?)(\([^*`]{0,300}?)?(?:\*\*|__)"
)
_ARGUMENT = re.compile(
    r"\s{0,9}([A-Za-z_][\w\-]{0,79})(\?)?\s{0,9}(?::\s{0,9}(\w+))?[^=]{0,99}(=)?"
)
_IDENTIFIER = re.compile(r"[A-Za-z][\w.\-/]{1,79}")
_KIND = re.compile(
    r"[\s:(\-–—]{0,20}"
    r"(string|str|integer|int|number|float|boolean|bool|array|list|object)"
    r"\b([^):]{0,60})\)?\s*[:\-–—]*\s*",
    re.IGNORECASE,
)
_KINDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}
_SEPARATOR = " :-–—|\t"
_LABELS = re.compile(r"(?:required |optional )?(?:inputs?|parameters?|arguments?|args|params)\W*$",
                     re.IGNORECASE)  # fmt: skip
_OUTPUT = re.compile(r"\W*(?:returns?|outputs?|examples?)\b", re.IGNORECASE)
_MOST_LINES = 20_000


def read_tools(readme: str) -> ReadmeTools:
    """Tools that stand by name in a section whose heading speaks of tools: as an item of a list
    (deeper items are its parameters), a row of a table, or a heading of their own."""
    found: dict[str, ReadmeTool] = {}
    level, indent, last = 0, 0, None
    for line in _iterate_prose(readme):
        if heading := _HEADING.match(line):
            depth, title = len(heading[1]), heading[2].rstrip(" \t#")[:200]
            if level and depth > level and (name := _read_name(title, bare=True)):
                last, indent = _add(found, *name), -1
            elif _ABOUT_TOOLS.search(title):
                level, last = depth, None
            elif depth <= level:
                level, last = 0, None
            continue
        if not level:
            continue
        if row := _ROW.match(line):
            cells = [cell.strip() for cell in row[1].split("|")]
            if name := _read_name(cells[0]):
                last = _add(found, name[0], cells[1] if len(cells) > 1 else "", name[2])
                indent = 0
            continue
        if item := _ITEM.match(line):
            deep = len(item[1].expandtabs(4))
            if last is not None and deep > indent:
                _add_parameter(last, item[2])
            elif name := _read_name(item[2]):
                last, indent = _add(found, *name), deep
            continue
        if last is not None and not last.description and line.strip() and not line.startswith("|"):
            last.description = line.strip()[:2_000]
    return ReadmeTools(tools=list(found.values())[:MOST_TOOLS])


def _iterate_prose(readme: str) -> Iterator[str]:
    """Lines outside of fenced code."""
    fenced = False
    for line in readme.split("\n")[:_MOST_LINES]:
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield line[:4_000]


def _read_name(text: str, *, bare: bool = False) -> tuple[str, str, str] | None:
    """(name, what follows, arguments of its signature) of a text that begins with a tool's name;
    `bare`: without any mark."""
    found = _NAMED.match(text)
    name = (found[1] or found[3]) if found else ""
    signature = (found[2] or found[4] or "") if found else ""
    rest = text[found.end() :] if found else ""
    if not found and bare and _IDENTIFIER.fullmatch(text) and re.search(r"[_\-.]", text):
        name = text
    name = name.strip(":")
    if not _IDENTIFIER.fullmatch(name):
        return None
    return name, re.sub(r"^\([^()]{0,200}\)", "", rest).strip(_SEPARATOR), signature.strip("():")


def _add(found: dict[str, ReadmeTool], name: str, about: str, signature: str) -> ReadmeTool:
    if name not in found:
        arguments = [_ARGUMENT.match(one) for one in signature.split(",")]
        parameters = {
            argument[1]: ReadmeParameter(
                name=argument[1],
                type=_read_kind(argument[3] or ""),
                required=not (argument[2] or argument[4]),
            )
            for argument in arguments
            if argument
        }
        made = list(parameters.values())[:MOST_PARAMETERS]
        found[name] = ReadmeTool(name=name, description=about[:2_000], parameters=made)
    return found[name]


def _read_kind(word: str) -> str:
    kind = _KIND.match(word.lower())
    return _KINDS.get(kind[1], kind[1]) if kind else ""


def _add_parameter(tool: ReadmeTool, text: str) -> None:
    """Adds what a deeper item says, where it names a parameter."""
    if _LABELS.match(text.strip("*_ ")) or _OUTPUT.match(text):
        return
    name = _read_name(text)
    if name is None:
        return
    known = {one.name: place for place, one in enumerate(tool.parameters)}
    place = known.get(name[0], len(tool.parameters))
    signed = tool.parameters[place] if name[0] in known else ReadmeParameter(name=name[0])
    if place >= MOST_PARAMETERS or signed.description:
        return
    rest = text[text.index(name[0]) + len(name[0]) :].lstrip("`*_")
    kind = _KIND.match(rest)
    optional = "optional" in rest.lower()[:120]
    about = rest[kind.end() :] if kind else rest
    tool.parameters[place : place + 1] = [
        ReadmeParameter(
            name=name[0],
            type=_read_kind(kind[1]) if kind else signed.type,
            required=signed.required and not optional,
            description=about.strip(_SEPARATOR + ")(")[:2_000],
        )
    ]
