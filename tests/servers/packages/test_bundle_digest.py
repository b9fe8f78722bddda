"""A bundle's digest is one from the page that states it to the file that it names."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from assets.marketplaces.listing import PackageRef
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import download
from assets.servers.recipes.install import ensure_artifact
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.toolchain import find_toolchain
from tests.marketplaces.adapters.test_mcpso import page, read
from tests.support.untrusted_server import POLICY

OUTSIDE = "../../state/ledger.db"


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    """What the page is after: a file of the user's, beside the cache."""
    path = tmp_path / "state" / "ledger.db"
    path.parent.mkdir()
    path.write_bytes(b"paid")
    return path


def test_a_page_names_no_file_of_the_user() -> None:
    link = f'<a href="http://127.0.0.1:9/x.mcpb" data-sha256="{OUTSIDE}">Get</a>'
    (listing,) = read(page(None) + link.encode())
    assert listing.package is not None
    assert (listing.package.digest, "unpinned" in listing.flags) == (None, True)
    with pytest.raises(ValidationError, match="is not a SHA-256"):
        PackageRef(type="mcpb", identifier="http://127.0.0.1:9/x.mcpb", digest=f"sha256:{OUTSIDE}")


def test_a_recipe_names_no_file_of_the_user(tmp_path: Path, ledger_file: Path, host) -> None:
    host.files["/x.mcpb"] = b"x"
    url = f"{host.url}/x.mcpb"
    with pytest.raises(ValueError, match="is not a SHA-256"):
        download(url, tmp_path / "cache" / "bundles", sha256=OUTSIDE, allow_loopback=True)  # type: ignore[arg-type]
    recipe = LaunchRecipe(
        server_id="mcpb:x", ecosystem="mcpb", name=url, url=url, integrity=f"sha256:{OUTSIDE}"
    )
    with pytest.raises(PackageError, match="no digest of a bundle") as refused:
        ensure_artifact(recipe, home=tmp_path, toolchain=find_toolchain(), policy=POLICY)
    assert refused.value.kind == "integrity"
    assert ledger_file.read_bytes() == b"paid"
    assert host.requests == []
