"""`release …`: what is served, going back, and copies of it that are checked and signed."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import allow_models, load_settings
from warehouse.extensions import RELEASE_FILES, load_extensions

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The release that is served.")

JSON = typer.Option("--json", help="one JSON object")


@app.command("list")
def list_releases(as_json: Annotated[bool, JSON] = False) -> None:
    """Releases, the newest first: their models, whether each is served, or could be."""
    from training.figures import shorten_model
    from training.releases.release import list_releases
    from warehouse.home import require_home

    home = require_home(load_settings().home_path())
    made = list_releases(home)
    if as_json:
        print_json({"releases": made})
        return
    for release in made:
        day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(release["at"]))
        models = ", ".join(
            f"{role} {shorten_model(name)}" for role, name in sorted(release["models"].items())
        )
        print_line(f"{release['release'][:12]}  {day}  {_name_state(release):<12}  {models}")
        for flaw in release["missing"]:
            print_line(f"{'':<14}{flaw}")
    print_line(f"{len(made)} releases")


@app.command()
def show(
    release: Annotated[
        str | None, typer.Argument(help="as `release list` names it; default: the served one")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", show_default=False, help="one JSON object (the default)")
    ] = True,
) -> None:
    """One release: models with their cards, contracts, training set, index versions on disk."""
    from training.releases.release import find_release, read_served
    from training.runtime.model_store import README, get_model_folder
    from warehouse.home import require_home

    home = require_home(load_settings().home_path())
    name = release or read_served(home).get("release")
    if name is None:
        fail("nothing is served yet: `make run` makes the first release", 2)
    facts = find_release(home, name)
    cards = {role: get_model_folder(home, held) / README for role, held in facts["models"].items()}
    print_json({**facts, "cards": {role: str(at) for role, at in cards.items() if at.exists()}})


@app.command()
def rollback(
    to: Annotated[
        str | None, typer.Option("--to", help="a release; default: the one served before")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="lift the last rollback, and serve what it left")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", show_default=False, help="one JSON object (the default)")
    ] = True,
) -> None:
    """Serve an earlier release: champions, release and router move together, or nothing does.
    Models that are left stay out until the rollback is lifted."""
    from training.releases.index_source import make_hold
    from training.releases.rollback import roll_back_release as back
    from training.releases.rollback import undo_rollback as lift
    from warehouse.home import require_home
    from warehouse.store import Warehouse

    if to is not None and undo:
        fail("give --to or --undo, not both", 2)
    settings = load_settings()
    # Not by way of the resources: Dagster's import would take longer than going back.
    home = require_home(settings.home_path())
    before = make_hold(Warehouse(home=home, state=settings.state_path()))
    print_json(asdict(lift(home, before) if undo else back(home, to, before)))


@app.command()
def watch(
    yes: Annotated[bool, typer.Option("--yes", help="roll it back where it is worse")] = False,
) -> None:
    """Hold the calls of the served release against those of the one before, as JSON; exit 1 where
    it serves worse and was left as it is."""
    from training.releases.index_source import make_hold
    from training.releases.live.rollback import judge_release, watch_release
    from warehouse.home import require_home
    from warehouse.store import Warehouse

    settings = load_settings()
    home, policy = require_home(settings.home_path()), settings.training.rollback
    if yes:
        hold = make_hold(Warehouse(home=home, state=settings.state_path()))
        found = watch_release(home, policy, time.time(), hold)
    else:
        found = judge_release(home, policy, time.time())
    print_json(asdict(found))
    if found.comparison is not None and found.comparison.worse and found.moved is None:
        raise typer.Exit(1)


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="a new or empty folder")],
    weights: Annotated[
        bool,
        typer.Option("--weights", help="also its language models, with serving recipes"),
    ] = False,
) -> None:
    """Copy the served index with its encoder: `toolmill serve --place OUT` needs nothing else."""
    from serving.export import export_release

    settings = load_settings()
    allow_models(settings)
    add_files = load_extensions(RELEASE_FILES).get("weights") if weights else None
    if weights and add_files is None:
        fail("--weights needs the extension `publishing`, which is not installed", 2)
    print_json(_describe_folder(out, export_release(settings.home_path(), out, add_files)))


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="an exported release")]) -> None:
    """Hold every file of an exported release against its manifest."""
    from serving.export import check_export

    print_json(_describe_folder(folder, check_export(folder)))


@app.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="an exported release")],
    key: Annotated[Path, typer.Option("--key", help="private key: Ed25519, PEM")],
) -> None:
    """Sign an exported release: RELEASE.sig, over the digests of all its files."""
    from serving.export import sign_export

    print_json(_describe_folder(folder, sign_export(folder, key)))


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="an exported release")],
    trust: Annotated[list[Path], typer.Option("--trust", help="public key: Ed25519, PEM")],
) -> None:
    """Check an exported release and that one of these keys signed it."""
    from serving.export import verify_export

    print_json(_describe_folder(folder, verify_export(folder, trust)))


def _describe_folder(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "folder": str(folder), "files": len(manifest["files"])}


def _name_state(release: dict[str, Any]) -> str:
    if release["served"]:
        return "served"
    if release["rolled_back"]:
        return "rolled back"
    return "incomplete" if release["missing"] else "possible"
