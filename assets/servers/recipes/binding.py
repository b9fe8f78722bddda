"""Binding: whether a recipe launches the server that it is listed as.

Secrets, accounts and grants are given by server id. A recipe whose name or address is another's
would carry them there.
"""

import re

from packaging.utils import canonicalize_name

from assets.marketplaces.listing import Package
from assets.servers.recipes.names import find_name_problem, normalise_address
from assets.servers.recipes.recipe import Recipe, RecipeError

# One to fill in, in an escaped address: {name}, ${name}, {{name}}, <name>.
_PLACE = re.compile(r"(?:\\\$)?(?:\\\{)+[^{}]*?(?:\\\})+|<[^<>]*>")


def check_identity(recipe: Recipe) -> None:
    """Raises RecipeError, naming both, where name or address are not those of the server id. A
    private server is named by its user; what it launches is what they trusted."""
    kind, colon, rest = recipe.server_id.partition(":")
    try:
        right = colon and kind == recipe.ecosystem and _is_named(recipe, rest)
    except ValueError as error:  # an address that is none
        raise _make_error(recipe, f" ({error})") from None
    if not right:
        raise _make_error(recipe)
    if recipe.ecosystem not in ("remote", "private"):
        package = Package(type=recipe.ecosystem, identifier=recipe.name)
        if problem := find_name_problem(package):
            raise RecipeError(f"recipe of {recipe.server_id[:200]!r}: {problem}")


def _is_named(recipe: Recipe, rest: str) -> bool:
    if recipe.ecosystem == "private":
        return bool(rest)
    if recipe.ecosystem == "pypi":
        return rest == canonicalize_name(recipe.name)
    if recipe.ecosystem == "mcpb":
        return _is_address(rest, recipe.name) and _is_address(rest, recipe.url or "")
    if recipe.ecosystem == "remote":
        return _is_address(rest.partition("#")[0], recipe.url or "")  # behind `#`: a gateway's
    return rest == recipe.name


def _is_address(identity: str, url: str) -> bool:
    """Whether an address is the one of the id; where that has places to fill in, they are filled
    with no more than a part of a path or host."""
    if not set("{<") & set(identity):
        return normalise_address(identity) == normalise_address(url)
    pattern = _PLACE.sub(r"[^/?#@:\\\\]+", re.escape(identity))
    return re.fullmatch(pattern, normalise_address(url), re.IGNORECASE) is not None


def _make_error(recipe: Recipe, more: str = "") -> RecipeError:
    found = (recipe.url if recipe.ecosystem == "remote" else recipe.name) or "nothing"
    return RecipeError(
        f"recipe of {recipe.server_id[:200]!r} launches {recipe.ecosystem} {found[:200]!r}{more},"
        " which is another server; build the index again, and do not use the one that said so"
    )
