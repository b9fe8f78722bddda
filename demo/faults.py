"""Faults: ways in which a replica marketplace misbehaves on request.

What belongs here: the kinds and what each does to a response. What does not: well-behaved answers.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from starlette.responses import HTMLResponse, Response

Fault = Literal["truncated", "empty", "html", "down"]
KINDS: tuple[str, ...] = get_args(Fault)
SITES = ("registry", "mcpso", "files")


def parse_faults(text: str) -> dict[str, str]:
    """`registry=truncated,mcpso=down` as a mapping. Raises ValueError naming what is unknown."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return checked({site.strip(): kind.strip() for site, _, kind in pairs})


def checked(faults: Mapping[str, str]) -> dict[str, str]:
    """The faults, if every site and kind exists. Raises ValueError."""
    for site, kind in faults.items():
        if site not in SITES or kind not in KINDS:
            raise ValueError(
                f"fault {site}={kind} does not exist; sites: {', '.join(SITES)}; kinds:"
                f" {', '.join(KINDS)}"
            )
    return dict(faults)


def cut(response: Response) -> Response:
    """The first half of a response, as if the line broke after a status of 200."""
    body = bytes(response.body)
    return Response(body[: len(body) // 2], media_type=response.media_type)


def interstitial() -> Response:
    """What a protective proxy says in place of the data, with status 200."""
    return HTMLResponse(
        "<!doctype html><html><head><title>Just a moment...</title></head>"
        "<body><p>Checking your browser.</p></body></html>"
    )
