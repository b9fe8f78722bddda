"""The licence a package states, in each place where it may stand, and nothing read elsewhere."""

import json
from pathlib import Path

import pytest

from assets.servers.recipes.package_files import read_licence
from assets.servers.recipes.recipe import LaunchRecipe


def recipe(ecosystem: str, name: str) -> LaunchRecipe:
    return LaunchRecipe.model_construct(ecosystem=ecosystem, name=name)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ("MIT", "MIT"),
        ({"type": "Apache-2.0", "url": "https://example.org"}, "Apache-2.0"),
        (["MIT"], None),
        ("", None),
        ("Permission is hereby granted " * 40, None),
        ("MIT\u0000", None),
        (7, None),
    ],
)
def test_an_npm_package_states_it_in_two_forms(tmp_path: Path, stated: object, read: str) -> None:
    put(tmp_path / "node_modules/@a/b/package.json", json.dumps({"license": stated}))
    assert read_licence(recipe("npm", "@a/b"), tmp_path) == read


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        ("License-Expression: MIT AND Apache-2.0\nLicense: other\n", "MIT AND Apache-2.0"),
        ("License: BSD-3-Clause\n", "BSD-3-Clause"),
        ("Classifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        ("Name: demo\n", None),
    ],
)
def test_a_distribution_states_it_in_three_fields(
    tmp_path: Path, metadata: str, read: str | None
) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    put(packages / "my_server-1.0.dist-info/METADATA", metadata)
    put(packages / "other-1.0.dist-info/METADATA", "License: GPL-3.0-only\n")
    assert read_licence(recipe("pypi", "My-Server"), tmp_path) == read


def test_a_bundle_states_it_in_its_manifest(tmp_path: Path) -> None:
    put(tmp_path / "manifest.json", json.dumps({"license": "Apache-2.0"}))
    assert read_licence(recipe("mcpb", "https://example.org/a.mcpb"), tmp_path) == "Apache-2.0"
    assert read_licence(recipe("remote", "https://example.org/mcp"), tmp_path) is None


def test_a_link_out_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path / "host.json", json.dumps({"license": "from-the-host"}))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "manifest.json").symlink_to(secret)
    assert read_licence(recipe("mcpb", "x"), tree) is None


@pytest.mark.parametrize("text", ["", "[" * 100_000, "null", "{"])
def test_a_broken_manifest_states_nothing(tmp_path: Path, text: str) -> None:
    put(tmp_path / "manifest.json", text)
    assert read_licence(recipe("mcpb", "x"), tmp_path) is None
