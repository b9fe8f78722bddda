"""A JSON text read part by part, so that never more than one bounded part of it is decoded: as a
whole it takes up to 25 times its size."""

import json
import re
from collections.abc import Iterator
from typing import Any

from warehouse.errors import UnusableInput

MOST = 2_000_000  # characters of one part; a tool with a vector of 8,192 numbers has 230,000
_WINDOWS = (1 << 16, 1 << 19, MOST)  # looked at one after another: most parts are short
_BLANKS = re.compile(r"[ \t\r\n]*")


class JsonText:
    """A place in a text. What it raises is UnusableInput and names the file and the part."""

    def __init__(self, text: str, file: object) -> None:
        self._text, self._file, self._at = text, file, 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The character that comes next, "" at the end."""
        found = _BLANKS.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def preview(self) -> str:
        """What stands here, for an error."""
        return repr(self._text[self._at : self._at + 20])

    def iterate_list(self, what: str) -> Iterator[str]:
        """`what` with its number for each element of the list here; each is taken or iterated by
        the caller before the next."""
        self._at += 1
        number = 0
        while self.peek() != "]":
            number += 1
            yield f"{what} {number}"
            self._pass_comma("]", f"the list breaks off after {what} {number}")
        self._at += 1

    def iterate_members(self, where: str) -> Iterator[str]:
        """The name of each member of the object here; its value is taken or iterated by the caller
        before the next."""
        self._at += 1
        while self.peek() != "}":
            name = self.take(where)
            if not isinstance(name, str) or self.peek() != ":":
                raise self._refuse(f"{where} is not JSON (expected a name and a colon)")
            self._at += 1
            yield name
            self._pass_comma("}", f"{where} is not JSON (it breaks off after {name[:40]!r})")
        self._at += 1

    def take(self, where: str) -> Any:
        """The value here, of MOST characters at most."""
        self.peek()
        for size in _WINDOWS:
            window = self._text[self._at : self._at + size]
            whole = self._at + size >= len(self._text)
            try:
                value, end = self._decoder.raw_decode(window)
            except (ValueError, RecursionError) as error:
                if whole or isinstance(error, RecursionError):
                    message = " ".join(str(error).split())[:120]
                    raise self._refuse(f"{where} is not JSON ({message})") from None
                continue
            if whole or end < len(window):  # else a number may go on
                self._at += end
                return value
        raise self._refuse(
            f"{where} has no JSON value within {MOST:,} characters, the most there is"
        )

    def _pass_comma(self, end: str, message: str) -> None:
        if self.peek() == ",":
            self._at += 1
        elif self.peek() != end:
            raise self._refuse(message)

    def _refuse(self, message: str) -> UnusableInput:
        return UnusableInput(f"{self._file}: {message}")
