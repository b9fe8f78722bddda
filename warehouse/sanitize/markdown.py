"""`Markdown` is what our code wrote, as the type checker makes sure; all else on Dagster's pages,
cards and reports is escaped: no image, link, tag or further cell."""

import base64
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from string import Formatter
from typing import Any, LiteralString

from warehouse.sanitize.untrusted_text import escape_text

_CELL, _PROSE, _NAME = 160, 1000, 100  # characters of a text: in a table, in a line, as a name
_COLOURS = 64
_INDEXED = b"\x03"  # the colour type of a PNG with a palette
_JOINER = "&#8288;"
_ADDRESS = frozenset("/@.")
# Without the others these mean nothing where they stand: a card can be read as a file.
_HARMLESS = (
    r"(?<=[A-Za-z0-9])[_\-](?=[A-Za-z0-9])|(?<=[0-9])\.(?=[0-9])|-(?=[0-9])|[+=](?=[A-Za-z0-9])"
    r"|[,;:'\"%?(]|(?<![0-9])\)"
)
_SIGN = re.compile(rf"{_HARMLESS}|([!-/:-@\[-`{{-~])")


class Markdown(str):
    """Markdown that our code wrote, as a literal or by the functions below."""

    __slots__ = ()

    def __new__(cls, text: LiteralString) -> "Markdown":
        return super().__new__(cls, text)


def mark_markdown(text: str) -> Markdown:
    """Marks what was made of Markdown alone; a test lists who may."""
    return str.__new__(Markdown, text)


def escape_markdown(value: object, cap: int = _PROSE) -> Markdown:
    """A value as Markdown that shows it: Markdown and numbers as they are, text cut to `cap`
    characters. ASCII signs become numeric entities: no tag, link, image or cell is left. An
    invisible joiner breaks bare addresses, which the UI links after reading entities."""
    if isinstance(value, Markdown):
        return value
    if isinstance(value, Number):
        return mark_markdown(str(value))
    return mark_markdown(_SIGN.sub(_escape_sign, escape_text(str(value))[:cap]))


def quote_text(text: object, cap: int = _NAME) -> Markdown:
    """Third-party text as an inert code span: line breaks, control and invisible characters go,
    backticks and bars become look-alikes, so that no span or cell can be left."""
    printable = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in str(text))
    code = " ".join(printable.split()).replace("`", "ˋ").replace("|", "¦")
    return mark_markdown(f"`{code[: cap - 1]}…`" if len(code) > cap else f"`{code or '-'}`")


def fill_markdown(template: LiteralString, /, *values: object, **named: object) -> Markdown:
    """`template.format(…)` with every value escaped; numbers take a format."""
    return mark_markdown(_FORMATTER.vformat(template, values, named))


def join_markdown(separator: LiteralString, pieces: Iterable[object]) -> Markdown:
    """The parts, each escaped that is no Markdown, with a separator of ours between them."""
    return mark_markdown(separator.join(map(escape_markdown, pieces)))


def embed_image(label: object, png: bytes) -> Markdown:
    """A picture that our code drew, as Markdown that holds it: a page loads nothing."""
    few = png[25:26] == _INDEXED
    data = base64.b64encode(png if few else shrink_png(png)).decode()
    return mark_markdown(f"![{escape_markdown(label)}](data:image/png;base64,{data})")


def shrink_png(png: bytes) -> bytes:
    """A plot in 64 colours, which is all it has but for smoothed edges: about a third of the bytes,
    of which Dagster keeps two copies a run. One that this makes no smaller stays as it is."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(
            _COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        ).save(small, "PNG")
    return min(small.getvalue(), png, key=len)


def make_markdown_table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    empty: LiteralString = "none",
    cap: int = _CELL,
) -> Markdown:
    """A Markdown table, or `empty` without rows. Each cell is one line, whoever wrote it."""
    lines = [_make_line(row, cap) for row in rows]
    if not lines:
        return mark_markdown(empty)
    head = [_make_line(header, cap), f"|{' --- |' * len(header)}"]
    return mark_markdown("\n".join([*head, *lines]))


def _make_line(cells: Iterable[object], cap: int) -> str:
    return f"| {' | '.join(_make_cell(cell, cap) for cell in cells)} |"


def _make_cell(value: object, cap: int) -> str:
    """Bars and line breaks of our own Markdown would end the cell."""
    return " ".join(escape_markdown(value, cap).splitlines()).replace("|", "\\|")


def _escape_sign(match: re.Match[str]) -> str:
    char = match[1]
    if char is None:
        return match[0]
    return f"{_JOINER if char in _ADDRESS else ''}&#{ord(char)};"


class _EscapingFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value, format_spec) if isinstance(value, Number) else escape_markdown(value)

    def check_unused_args(
        self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        if missed := {*range(len(args)), *kwargs} - set(used_args):
            raise ValueError(f"the template has no place for {sorted(map(str, missed))}")


_FORMATTER = _EscapingFormatter()
