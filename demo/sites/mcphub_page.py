"""MCPHub page: the markup of mcphub.com as Next.js streams it."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from html import escape

from demo.sites.configs import make_config
from demo.world.record import Record

_GATEWAY = "https://api.mcphub.com/mcp"


def make_shell(title: str, head: str, body: str, streamed: str = "") -> str:
    """A whole document; `streamed` comes after the visible page."""
    return f"""<!DOCTYPE html><html lang="en"><head><meta charSet="utf-8"/><title>{title}</title>
{head}</head><body><main>{body}</main>{streamed}<script>self.__next_f=[]</script></body></html>
"""


def make_cards(records: Iterable[Record]) -> str:
    """Servers as lists show them."""
    return "".join(map(_make_card, records))


def _make_card(record: Record) -> str:
    tags = "".join(f'<a class="badge" href="/tags/{tag}">{escape(tag)}</a>' for tag in record.tags)
    return (
        f'<a class="card bg-base-100" href="/mcp-servers/{record.namespace}/{record.slug}">'
        f'<h3 class="card-title">{escape(record.title)}</h3>'
        f"<p>by <!-- -->{escape(record.namespace)}</p>"
        f'<p class="line-clamp-2">{escape(record.description)}</p></a>{tags}'
    )


def make_page(record: Record, related: list[Record], streams: bool = True) -> str:
    """A server's page: its own config stands in `div#S:0` at the end of the document, if it
    still `streams`."""
    here = f"/mcp-servers/{record.namespace}/{record.slug}"
    tabs = "".join(
        f'<a role="tab" href="{here}/{one}">{one.title()}</a>'
        for one in ("quality", "schema", "inspector", "comments")
    )
    source = f'<a href="{escape(record.repository)}">Repository</a>' if record.repository else ""
    body = f"""
<div class="breadcrumbs"><ul><li><a href="/mcp-servers">MCP Servers</a></li>
<li><a href="/mcp-servers/{record.namespace}">{escape(record.namespace)}</a></li></ul></div>
<h1 class="text-3xl">{escape(record.namespace)}<!-- -->/<!-- -->{escape(record.slug)}</h1>
<a role="tab" href="{here}">Overview</a>{tabs}{source}
<h3 class="font-bold">Server config via mcphub</h3>
<div role="alert"><!--$?--><template id="B:0"></template><!--/$--></div>
<div class="stats"><div class="stat"><div class="stat-title">Tools</div>
<div class="stat-value">{len(record.tools)}</div></div></div>
<div class="prose">{_make_readme(record)}</div>
<section>{make_cards(related)}</section>"""
    title = f"{escape(record.title)} by {escape(record.namespace)} - MCP Server | MCPHub"
    return make_shell(
        title, _make_head(record, here), body, _make_streamed(record) if streams else ""
    )


def _make_head(record: Record, here: str) -> str:
    tags = escape(",".join((record.slug, record.namespace, *record.tags)))
    return f"""<meta name="description" content="{escape(record.description)}"/>
<meta name="author" content="{escape(record.namespace)}"/>
<meta name="article:published_time" content="{record.created_at}"/>
<meta name="article:modified_time" content="{record.revised_at}"/>
<meta name="article:tag" content="{tags}"/>
<link rel="canonical" href="https://mcphub.com{here}"/>
"""


def _make_readme(record: Record) -> str:
    """The author's text, with the way to start the server oneself."""
    found = make_config(record)
    shown = f"<pre><code>{escape(json.dumps(found, indent=2))}</code></pre>" if found else ""
    return f"<h1>{escape(record.title)}</h1><p>{escape(record.description)}</p>{shown}"


def _make_streamed(record: Record) -> str:
    """The answer to the placeholder: the marketplace's gateway with a bearer token in it."""
    entry = {
        "url": f"{_GATEWAY}/{record.namespace.lower()}-{record.slug}",
        "headers": {"Authorization": f"Bearer {_make_token()}"},
    }
    text = json.dumps({"mcpServers": {record.slug: entry}}, indent=2)
    return f'<div hidden id="S:0"><pre>{escape(text)}</pre></div>'


def _make_token() -> str:
    """Looks like a JSON Web Token and opens nothing."""
    parts = ({"alg": "none", "typ": "JWT"}, {"sub": "demo", "note": "not a secret"}, "signature")
    texts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(texts)
