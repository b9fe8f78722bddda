"""Commands about models and releases: `champion` and `release`."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import (
    AsJson,
    By,
    Why,
    count_noun,
    fail,
    print_json,
    print_line,
    require_known,
    require_texts,
)
from orchestration.settings.load import allow_models, load_settings
from warehouse.extensions import load_hook

app = typer.Typer()
release_app = typer.Typer(no_args_is_help=True, help="List, roll back, export and sign releases.")
app.add_typer(release_app, name="release")


@app.command()
def champion(
    role: Annotated[
        str | None, typer.Argument(help="retriever, caller, reranker or sidecar; default: all")
    ] = None,
    approve: Annotated[
        bool,
        typer.Option(
            "--approve", help="promote the last candidate: it waits, or a person refused it"
        ),
    ] = False,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="no later run promotes the candidate that waits")
    ] = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """List the champion of each role with its gates, or decide on a candidate.

    Only a candidate that passed every gate can be approved. It serves with the next run's
    release."""
    from training.releases.champion import read_champion
    from training.releases.in_service import find_model_in_service
    from training.releases.promotion import approve_candidate, refuse_candidate
    from training.role import list_roles
    from warehouse.home import require_home

    require_known("role", [role] if role else None, list(list_roles()))
    home = require_home(load_settings().home_path())
    if approve or refuse:
        if role is None or approve == refuse:
            fail("give a role with --approve or --refuse", 2)
        require_texts(by=by, why=why)
        decide = approve_candidate if approve else refuse_candidate
        print_json(asdict(decide(home, role, by=by, why=why)))
        return
    roles = [role] if role else list(list_roles())
    rows = [(name, read_champion(home, name), find_model_in_service(home, name)) for name in roles]
    if as_json:
        print_json({name: {**asdict(now), "serves": asdict(used)} for name, now, used in rows})
        return
    for name, now, used in rows:
        print_line(f"{name:<10} {now.model[:20]}")
        last, notes = now.last_candidate, [(used.notice, now.gates)]
        if last:
            outcome = f"last candidate {last['model'][:12]}: {last['why']}"
            notes.append((outcome, [] if last["promoted"] else last["gates"]))
        elif not now.gates:
            notes.append(("no candidate yet", []))
        for note, gates in notes:
            if note:
                print_line(f"{'':<10} {note}")
            for gate in gates:
                mark = "passed" if gate["passed"] else "FAILED"
                print_line(f"{'':<10} {mark}  {gate['name']}: {gate['found']}")


@release_app.command("list")
def list_releases(
    release: Annotated[
        str | None, typer.Argument(help="one release with all its facts, as JSON; or `served`")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List releases, the newest first: their models, and whether each is or could be served."""
    from training.figures import shorten_model
    from training.releases.release import list_releases
    from warehouse.home import require_home

    home = require_home(load_settings().home_path())
    if release is not None:
        _print_release(home, release)
        return
    releases = list_releases(home)
    if as_json:
        print_json({"releases": releases})
        return
    for facts in releases:
        day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(facts["at"]))
        models = ", ".join(
            f"{role} {shorten_model(name)}" for role, name in sorted(facts["models"].items())
        )
        print_line(f"{facts['release'][:12]}  {day}  {_name_state(facts):<12}  {models}")
        for flaw in facts["missing"]:
            print_line(f"{'':<14}{flaw}")
    print_line(count_noun(len(releases), "release"))


def _print_release(home: Path, release: str) -> None:
    from training.releases.release import find_release, read_served
    from training.runtime.model_store import README, get_model_folder

    name = read_served(home).get("release") if release == "served" else release
    if name is None:
        fail("nothing is served yet: `make run` makes the first release", 2)
    facts = find_release(home, name)
    models = facts["models"].items()
    cards = {role: get_model_folder(home, model) / README for role, model in models}
    print_json({**facts, "cards": {role: str(at) for role, at in cards.items() if at.exists()}})


@release_app.command()
def rollback(
    to: Annotated[
        str | None, typer.Option("--to", help="a release; default: the one served before")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="lift the last rollback, and serve what it left")
    ] = False,
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


@release_app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="a new or empty folder")],
    weights: Annotated[
        bool, typer.Option("--weights", help="also its language models: safetensors, recipes")
    ] = False,
) -> None:
    """Copy the served index with its encoder; `toolmill serve --place OUT` needs nothing else."""
    from serving.export import export_release

    settings = load_settings()
    allow_models(settings)
    add_files = load_hook("write_weights") if weights else None
    print_json(_describe_folder(out, export_release(settings.home_path(), out, add_files)))


@release_app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="an exported release")],
    trust: Annotated[
        list[Path] | None,
        typer.Option("--trust", help="public key: Ed25519, PEM; default: files alone"),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", help="private key: Ed25519, PEM; writes RELEASE.sig once checked"),
    ] = None,
) -> None:
    """Check every file of an exported release, and that a key signed it; or --sign it."""
    from serving.export import check_export, sign_export, verify_export

    manifest = verify_export(folder, trust) if trust else check_export(folder)
    if sign is not None:
        manifest = sign_export(folder, sign)
    print_json(_describe_folder(folder, manifest))


def _describe_folder(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "folder": str(folder), "files": len(manifest["files"])}


def _name_state(release: dict[str, Any]) -> str:
    if release["served"]:
        return "served"
    if release["rolled_back"]:
        return "rolled back"
    return "incomplete" if release["missing"] else "possible"
