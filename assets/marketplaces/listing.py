"""Listing: what one marketplace says about one server, in one normal form."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from warehouse.item_failure import try_item
from warehouse.storage.digest import Sha256, canonical_json, digest

PRIVATE = "private"  # the marketplace of the user's own files
Transport = Literal["stdio", "streamable-http", "sse"]
PackageType = Literal["npm", "pypi", "mcpb", "oci", "nuget", "cargo"]
PackageDigest = Annotated[
    str, AfterValidator(lambda given: f"sha256:{Sha256(given.removeprefix('sha256:'))}")
]
Flags = Annotated[tuple[str, ...], BeforeValidator(lambda found: tuple(sorted(set(found))))]


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvVar(_FrozenModel):
    """An environment variable of the server. A secret never carries a value."""

    name: str
    required: bool = False
    secret: bool = False
    default: str | None = None
    description: str | None = None


class HeaderVar(EnvVar):
    """An HTTP header of a remote server; facts like those of a variable."""


class PackageRef(_FrozenModel):
    """What to install. `digest` is "sha256:<hex>" where the marketplace states one, else None."""

    type: PackageType
    identifier: str  # a package name; for mcpb the bundle's URL; for oci the image
    version: str | None = None
    digest: PackageDigest | None = None


class LaunchFacts(_FrozenModel):
    """What the command line of a listing says, read once: the server's own arguments (without
    runner, options and package), and its program where that is not the package's only one.
    requirements: packages that the line installs besides, or extras of its own; python: the minor
    version that it asks for.

    Of a local server (`Listing.is_local`): directory is the folder of this host that its command
    runs in."""

    own_args: tuple[str, ...] = ()
    entry: str | None = None
    requirements: tuple[str, ...] = ()
    python: str | None = None
    directory: str | None = None

    @model_serializer(mode="wrap")
    def _drop_unset(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Rows stay as they were written before there were the later fields."""
        facts: dict[str, Any] = dump(self)
        return {
            name: value for name, value in facts.items() if value or name in ("own_args", "entry")
        }


class Listing(_FrozenModel):
    """One server as one marketplace lists it.

    `command` and `args` are what a person would type (`npx -y NAME@1.2.3 ARGS`); they are never
    given to a shell. For an mcpb package `command` is None: the bundle's manifest holds it. An
    argument the user must supply stands as `{name}` or `{name:filepath}` (formats: string, number,
    boolean, filepath). `launch` is what they say, None where there are none; an adapter that has
    read them states it, else `normalise.clean` reads them. `runnable` says that the listing holds
    the evidence for a recipe; if not, `reason` says why. `tools` is what the marketplace shows of
    the server's tools (`dump_tools`): nobody launched them, and a row holds only their blob.
    """

    marketplace: str
    native_id: str = Field(min_length=1)
    name: str
    description: str = ""
    repository: str | None = None
    subfolder: str | None = None  # of the repository, where it holds several servers
    transport: Transport | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    launch: LaunchFacts | None = None
    env: tuple[EnvVar, ...] = ()
    url: str | None = None
    headers: tuple[HeaderVar, ...] = ()
    package: PackageRef | None = None
    evidence: str = ""  # where in the payload the launch facts stood
    flags: Flags = ()
    runnable: bool = False
    reason: str | None = None
    updated_at: str | None = None  # RFC 3339, as the marketplace says
    tools: str | None = Field(default=None, repr=False)  # JSON list

    @property
    def listing_id(self) -> str:
        """ "<marketplace>:<native id>", the key of the table."""
        return f"{self.marketplace}:{self.native_id}"

    @property
    def is_local(self) -> bool:
        """Whether it is a server of the user's own: a command in a folder of this host."""
        local = self.launch is not None and bool(self.launch.directory)
        return local and self.marketplace == PRIVATE and not self.package and not self.url


_NESTED = ("args", "launch", "env", "headers", "package", "flags")


def digest_listing(listing: Listing) -> str:
    """SHA-256 over everything the listing says, except when it was last edited, its tools, which
    have a digest of their own, and `launch`, which follows from the rest but for a directory."""
    facts = listing.model_dump(mode="json", exclude={"updated_at", "launch", "tools"})
    if listing.launch and listing.launch.directory:
        facts["directory"] = listing.launch.directory
    return digest(facts)


def make_row(
    listing: Listing, *, fetched_at: float | None = None, tools_blob: str | None = None
) -> dict[str, Any]:
    """The listing as a row of the table; nested fields become canonical JSON, `tools_blob` names
    where its tools lie."""
    facts = listing.model_dump(mode="json", exclude={"tools"})
    row = {
        name: canonical_json(value).decode() if name in _NESTED and value is not None else value
        for name, value in facts.items()
    }
    return row | {
        "listing_id": listing.listing_id,
        "listing_digest": digest_listing(listing),
        "tools_blob": tools_blob,
        "fetched_at": fetched_at,
    }


def read_rows(rows: Iterable[Mapping[str, Any]]) -> list[Listing]:
    """The listings of rows of the table; a row that cannot be read is one that is not runnable."""
    return [try_item(partial(read_row, row), partial(_make_unreadable, row)) for row in rows]


def _make_unreadable(row: Mapping[str, Any], why: str) -> Listing:
    names = {name: str(row.get(name) or "?") for name in ("marketplace", "native_id", "name")}
    return Listing.model_validate(
        {**names, "reason": f"the row of its listing cannot be read ({why})"}
    )


def read_row(row: Mapping[str, Any]) -> Listing:
    """The listing of a row of the table, without its tools; columns that are not part of the form
    are ignored."""
    facts = {name: row.get(name) for name in Listing.model_fields}
    for name in _NESTED:
        if isinstance(text := facts[name], str):
            facts[name] = json.loads(text)
    facts["description"] = facts["description"] or ""
    facts["evidence"] = facts["evidence"] or ""
    return Listing.model_validate(facts)


# Every member of the protocol that says what a tool is; marketplaces add icons, scores, ids.
FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_OTHERWISE = {"inputSchema": "input_schema", "outputSchema": "output_schema"}
MOST_TOOLS = 500  # of one server
_LONGEST = 200_000  # characters of one tool
_MOST = 2_000_000  # characters of all


def dump_tools(tools: Any) -> str | None:
    """The tools of a record as a JSON list, None where it shows none.

    `shown` is a list of objects or of names. An entry without a name, one that JSON cannot hold
    and one that is too long are left out, as is whatever comes after the list is full.
    """
    texts: list[str] = []
    left = _MOST
    for entry in tools if isinstance(tools, list) else ():
        text = _dump_tool(entry)
        if text is None:
            continue
        left -= len(text)
        if left < 0 or len(texts) == MOST_TOOLS:
            break
        texts.append(text)
    return f"[{','.join(texts)}]" if texts else None


def load_tools(text: bytes | str) -> list[dict[str, Any]]:
    """The tools of `dump_tools`; what is none of them, or too much, is left out."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    tools = value if isinstance(value, list) else []
    return [tool for tool in tools[:MOST_TOOLS] if isinstance(tool, dict)]


def _dump_tool(entry: Any) -> str | None:
    tool = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(tool, Mapping):
        return None
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    members = {key: tool.get(key, tool.get(_OTHERWISE.get(key, key))) for key in FIELDS}
    try:
        text = json.dumps(
            {key: value for key, value in members.items() if value is not None}, allow_nan=False
        )
    except (ValueError, TypeError, RecursionError):
        return None
    return text if len(text) <= _LONGEST else None
