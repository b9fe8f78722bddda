"""Synthetic: invented servers of every kind, as many as are wanted.

The mix follows what crawls of 2025 and 2026 saw: npm before PyPI, one in seven hosted, one in
thirty with a path of the author's own machine, a few without a version or with a broken command.
"""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from demo.world.record import DATES, Input, Package, Record, Remote

_words = str.split

_ADJECTIVES = _words(
    "amber brisk calm deft early fair gentle hazel ivory jolly keen lucid mellow nimble olive "
    "plain quick rapid sober tidy umber vivid warm young zesty"
)
_NOUNS = _words(
    "atlas beacon canvas docket engine forge garden harbor index journal kiosk ledger matrix "
    "notebook orchard parcel quarry router survey ticket unit vault weather xylem yard zone"
)
_VERBS = _words("add archive compare convert count delete export fetch find get list read search")
_OWNERS = _words("alder birch cedar elm fir hawthorn ivy juniper larch maple oak pine rowan")
TAGS = _words(
    "browser calendar cloud data database design developer_tools education email files "
    "finance games knowledge maps media monitoring news research search security shopping "
    "travel"
)
_START = datetime(2024, 12, 1, tzinfo=UTC)
_LAST = datetime(2026, 11, 20, tzinfo=UTC)
_INPUTS = (
    Input("API_KEY", "Key of the account", required=True, secret=True),
    Input("ACCESS_TOKEN", "Token with read access", secret=True),
    Input("BASE_URL", "Address of the service", default="https://api.service.example"),
    Input("REGION", "Region of the data", default="eu-west"),
    Input("WORKSPACE", "Name of the workspace", required=True),
    Input("LOG_LEVEL", "How much is logged", default="info"),
)
# Of 256 records: the rest are as they should be.
_ODD = dict(
    enumerate(["local_path"] * 8 + ["unpinned"] * 4 + ["multi"] * 2 + ["shell"] * 2 + ["malformed"])
)


def make_record(index: int) -> Record:
    """Record number `index` of an invented world; it depends on nothing else."""
    dice = blake2b(b"%d" % index, digest_size=16).digest()
    adjective = _ADJECTIVES[dice[0] % len(_ADJECTIVES)]
    noun = _NOUNS[dice[1] % len(_NOUNS)]
    slug = f"{noun}-{adjective}-{index}"
    author = index // 3  # three neighbours have one
    namespace = f"{_OWNERS[author % len(_OWNERS)]}{author}"
    created = _START + timedelta(minutes=7 * index)
    version = f"{dice[2] % 4}.{dice[3] % 20}.{dice[4] % 10}"
    title, tools = f"{adjective.title()} {noun.title()}", _list_tools(dice, noun)
    return Record(
        slug=slug,
        namespace=namespace,
        title=title,
        description=f"{title} number {index}: {', '.join(tools)} and more.",
        repository=f"https://github.com/{namespace}/{slug}" if dice[5] % 20 else None,
        version=version,
        inputs=_list_inputs(dice, noun),
        tools=tools,
        tags=(TAGS[dice[6] % len(TAGS)], TAGS[dice[7] % len(TAGS)]),
        created_at=_make_text(created),
        # Some time after it was made, before the demo's first day.
        revised_at=_make_text(created + (_LAST - created) * (dice[8] / 256)),
        schema=DATES[dice[9] % len(DATES)],
        odd=_ODD.get(dice[10]),
        **_make_launch(dice, slug, namespace, version),
    )


def _make_launch(dice: bytes, slug: str, namespace: str, version: str) -> dict[str, Any]:
    """The package or the remote, or neither."""
    kind = dice[11]
    if kind < 118:
        name = f"@{namespace}/{slug}" if dice[12] % 3 else slug
        return {"package": Package("npm", name, version)}
    if kind < 200:
        return {"package": Package("pypi", slug, version)}
    if kind < 211:
        return {"package": Package("oci", f"ghcr.io/{namespace}/{slug}", version)}
    if kind < 218:
        digest = blake2b(slug.encode(), digest_size=32).hexdigest()
        url = f"https://github.com/{namespace}/{slug}/releases/download/v{version}/{slug}.mcpb"
        return {"package": Package("mcpb", slug, version, url=url, sha256=digest)}
    if kind < 253:
        auth = ("none", "api_key", "oauth2")[dice[12] % 3]
        transport = "sse" if dice[13] % 8 == 0 else "streamable-http"
        return {"remote": Remote(f"https://{slug}.mcp.example/mcp", transport, auth)}  # type: ignore[arg-type]
    return {}


def _list_inputs(dice: bytes, noun: str) -> tuple[Input, ...]:
    count = (0, 0, 1, 1, 2, 3)[dice[14] % 6]
    chosen = [_INPUTS[(dice[15] + n) % len(_INPUTS)] for n in range(count)]
    prefix = noun.upper()
    return tuple(
        Input(f"{prefix}_{one.name}", one.description, one.required, one.secret, one.default)
        for one in chosen
    )


def _list_tools(dice: bytes, noun: str) -> tuple[str, ...]:
    return tuple(f"{_VERBS[(dice[13] + n) % len(_VERBS)]}_{noun}" for n in range(1 + dice[12] % 8))


def _make_text(when: datetime) -> str:
    return f"{when.isoformat()[:19]}Z"
