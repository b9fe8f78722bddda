"""A recipe as plain facts, so that a server can be launched again later as it was launched."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from assets.servers.recipes.recipe import Recipe

_SCRIPTS = "scripts"


class RecipeError(ValueError):
    """Facts that are no recipe of this version; says which part."""


def dump_recipe(recipe: Recipe, *, scripts: bool = False) -> dict[str, Any]:
    """What it takes to launch the recipe again. scripts: the artefact that counted was built with
    its own install scripts."""
    facts = recipe.model_dump(mode="json", exclude_defaults=True)
    return {**facts, _SCRIPTS: True} if scripts else facts


def load_recipe(facts: Mapping[str, Any]) -> Recipe:
    """The recipe of `recipe_facts`. Raises RecipeError."""
    try:
        return Recipe(**{name: one for name, one in facts.items() if name != _SCRIPTS})
    except (ValidationError, TypeError) as error:
        said = " ".join(str(error).split())[:200]
        name = str(facts.get("server_id"))[:200]
        raise RecipeError(
            f"recipe of {name}: {said}; expected what `recipe_facts` writes: build the index again"
        ) from None


def needs_scripts(facts: Mapping[str, Any]) -> bool:
    """Whether the artefact is the one that was built with its own install scripts."""
    return bool(facts.get(_SCRIPTS))
