"""The recipe: one pinned way to launch one server, its digest, and its form as plain facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from assets.servers.probe.failure_kinds import KINDS
from warehouse.storage.digest import digest

RECIPE_VERSION = 2  # of how listings are planned: when it rises, all are planned anew
_FORM = 1  # of the digest

Ecosystem = Literal["npm", "pypi", "mcpb", "oci", "remote", "private"]
Transport = Literal["http", "sse", "auto"]
# Facts that came later: left out of the digest where unset, so that older digests stand.
_LATER = ("transport", "headers", "python", "as_of", "instead_of")
_SCRIPTS = "scripts"  # the fact that the artefact was built with its own install scripts


class Recipe(BaseModel):
    """How to launch one server, pinned.

    name: package name, bundle or remote URL, image, or the private server's name. integrity: what
    the download must hash to (npm's `sha512-…`, else space-separated `sha256:<hex>`). spare_env:
    values of optional variables, tried when the server lists nothing without them. placeholders:
    what is made up: `arg:0`, `env:NAME`, `header:NAME`, `url:NAME`, `args`. command: a private
    server's own program, run in `directory` of this host; without one, `name` is a local image.
    Their integrity is that of what the folder holds, or the image's id. python: the minor version
    it needs where the usual one will not do. released: when the release came out (RFC 3339), as its
    registry says; as_of: the date whose dependencies are installed, None for today's. instead_of:
    the version that the listing names and its registry does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str
    ecosystem: Ecosystem
    name: str
    version: str | None = None
    integrity: str | None = None
    entry: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    spare_env: tuple[tuple[str, str], ...] = ()
    placeholders: tuple[str, ...] = ()
    url: str | None = None
    command: tuple[str, ...] = ()
    directory: str | None = None
    transport: Transport | None = None
    headers: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    released: str | None = None
    as_of: str | None = None
    instead_of: str | None = None
    recipe_version: int = _FORM

    @property
    def is_image(self) -> bool:
        """Whether a container engine runs it: an image of a registry, or one of this host."""
        return self.ecosystem == "oci" or (self.ecosystem == "private" and not self.directory)

    @property  # not cached: a changed copy would carry its original's digest
    def digest(self) -> str:
        """Over everything that changes the launch. The address of content that is pinned by its
        hash does not: the same bundle from elsewhere is the same recipe."""
        facts = self.model_dump(mode="json", exclude={"released"})  # the version says it
        facts = {name: one for name, one in facts.items() if name not in _LATER or one}
        if self.ecosystem == "mcpb" and self.integrity:
            facts["url"] = facts["name"] = None
        return digest(facts)


@dataclass(frozen=True)
class Unlaunchable:
    """A listing that gives no recipe: kind of the taxonomy, what was found, what to do."""

    server_id: str | None
    kind: str
    reason: str

    @property
    def hint(self) -> str:
        return f"{self.reason}: {KINDS[self.kind].hint}"


@dataclass(frozen=True)
class Resolved:
    """What a registry says about one release; as in Recipe."""

    version: str | None
    integrity: str
    python: str | None = None
    released: str | None = None
    instead_of: str | None = None


class RecipeError(ValueError):
    """Facts that are no recipe of this version; says which part."""


def dump_recipe(recipe: Recipe, *, scripts: bool = False) -> dict[str, Any]:
    """What it takes to launch the recipe again. scripts: the artefact that counted was built with
    its own install scripts."""
    facts = recipe.model_dump(mode="json", exclude_defaults=True)
    return {**facts, _SCRIPTS: True} if scripts else facts


def load_recipe(facts: Mapping[str, Any]) -> Recipe:
    """The recipe of `dump_recipe`. Raises RecipeError."""
    try:
        return Recipe(**{name: one for name, one in facts.items() if name != _SCRIPTS})
    except (ValidationError, TypeError) as error:
        message = " ".join(str(error).split())[:200]
        name = str(facts.get("server_id"))[:200]
        raise RecipeError(
            f"recipe of {name}: {message}; expected what `dump_recipe` writes:"
            " build the index again"
        ) from None


def needs_scripts(facts: Mapping[str, Any]) -> bool:
    """Whether the artefact is the one that was built with its own install scripts."""
    return bool(facts.get(_SCRIPTS))
