"""A recipe that was launched can be launched again from its facts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.deploy.deploy import deploy
from assets.servers.recipes.recipe import (
    LaunchRecipe,
    RecipeError,
    dump_recipe,
    load_recipe,
    needs_scripts,
)
from tests.servers.deploy.test_deploy import RECIPE, installed

__all__ = ["installed"]

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
pairs = st.lists(st.tuples(words, words), max_size=3).map(tuple)
recipes = st.builds(
    LaunchRecipe,
    server_id=words,
    ecosystem=st.sampled_from(["npm", "pypi", "mcpb", "oci", "remote"]),
    name=words,
    version=st.none() | words,
    integrity=st.none() | words,
    args=st.lists(words, max_size=3).map(tuple),
    env=pairs,
    spare_env=pairs,
    placeholders=st.lists(words, max_size=3).map(tuple),
    url=st.none() | words,
    transport=st.none() | st.sampled_from(["http", "sse", "auto"]),
    headers=pairs,
    as_of=st.none() | words,
)


@given(recipes, st.booleans())
def test_a_recipe_survives_json_with_its_digest(recipe, scripts):
    facts = json.loads(json.dumps(dump_recipe(recipe, scripts=scripts)))
    assert load_recipe(facts) == recipe
    assert load_recipe(facts).digest == recipe.digest
    assert needs_scripts(facts) is scripts


@pytest.mark.parametrize(
    "facts", [{}, {"server_id": "npm:x", "ecosystem": "gem", "name": "x"}, {"no": "recipe"}]
)
def test_what_is_no_recipe_is_refused_with_the_fix(facts):
    with pytest.raises(RecipeError, match="build the index again"):
        load_recipe(facts)


def test_the_launch_that_counted_is_kept_where_it_was_a_guess(installed):
    policy = installed("serve([tool('a')] if os.environ.get('REGION') else [])")
    facts = {"spare_env": (("REGION", "us"),), "placeholders": ("env:REGION",)}
    planned = RECIPE.model_copy(update=facts)
    deployed = deploy(planned, policy)
    used = load_recipe(deployed.launched or {})
    assert used.env == (("REGION", "us"),)
    assert used.placeholders == ("env:REGION",)
    assert planned.env == ()


def test_a_planned_launch_that_counted_is_told_by_nothing(installed):
    assert deploy(RECIPE, installed("serve([tool('a')])")).launched is None
