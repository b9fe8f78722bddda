"""Links: a walk over the pages of one site, breadth first, each page once."""

import re
from collections import deque
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

from assets.marketplaces.markup.launch_facts import Blocks

_MOST = 200_000  # pages a walk remembers
# {"href":"/tags/x"} in a script, and the same inside a script's string
_STREAMED = re.compile(r"\\?\"href\\?\"\s{0,5}:\s{0,5}\\?\"(/[^\"\\\s]{1,300})")


class Walk:
    """Pages still to read; `start` is the first."""

    def __init__(self, start: str) -> None:
        self.start = start
        self._due = deque([start])
        self._seen = {start}

    def next(self) -> str | None:
        """The page to read now, None at the end."""
        return self._due.popleft() if self._due else None

    def add(self, html: str, url: str, paths: Iterable[re.Pattern[str]]) -> list[str]:
        """Remembers the pages a page links whose path matches one of `paths`; those that are new,
        in order."""
        page = Blocks(html)
        streamed = [
            found[1]
            for block in page.blocks
            if block.name == "script"
            for found in _STREAMED.finditer(block.text)
        ]
        new = []
        for href in (*page.links, *streamed):
            linked = _resolve_same_site(url, href)
            if linked is None or linked in self._seen or len(self._seen) >= _MOST:
                continue
            if any(path.fullmatch(urlsplit(linked).path) for path in paths):
                self._seen.add(linked)
                self._due.append(linked)
                new.append(linked)
        return new


def _resolve_same_site(url: str, href: str) -> str | None:
    """The address of a link without query and fragment; None where it leaves the site."""
    try:
        linked, here = urlsplit(urljoin(url, href)), urlsplit(url)
    except ValueError:
        return None
    if (linked.scheme, linked.netloc) != (here.scheme, here.netloc):
        return None
    return f"{linked.scheme}://{linked.netloc}{linked.path.rstrip('/')}"
