"""The commands `champion list | approve | refuse | restore`: who serves each role, what a person
decides on, and a lost pointer put back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The best model of each role.")

ROLE = typer.Argument(help="retriever, caller, reranker or sidecar")
BY = typer.Option("--by", help="who decides")
WHY = typer.Option("--why", help="the reason, as the history keeps it")


@app.command("list")
def list_champions(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Each role's champion, the gates it passed, and the outcome of the last candidate."""
    from training.releases.champion import read_champion
    from training.releases.in_service import find_model_in_service
    from training.role import list_roles

    home = _find_home()
    found = {
        role: (read_champion(home, role), find_model_in_service(home, role))
        for role in list_roles()
    }
    if as_json:
        print_json(
            {role: {**asdict(now), "serves": asdict(used)} for role, (now, used) in found.items()}
        )
        return
    for role, (now, used) in found.items():
        print_line(f"{role:<10} {now.model[:20]}")
        if used.notice:
            print_line(f"{'':<10} {used.notice}")
        for gate in now.gates:
            mark = "passed" if gate["passed"] else "FAILED"
            print_line(f"{'':<10} {mark}  {gate['name']}: {gate['found']}")
        if now.last_candidate:
            candidate = now.last_candidate
            print_line(f"{'':<10} last candidate {candidate['model'][:12]}: {candidate['why']}")


@app.command()
def approve(role: Annotated[str, ROLE], by: Annotated[str, BY], why: Annotated[str, WHY]) -> None:
    """Promote the candidate that waits, or one that was refused before; it serves with the next
    run's release."""
    from training.releases.promotion import approve_candidate

    _require_role(role)
    print_json(asdict(approve_candidate(_find_home(), role, by=by, why=why)))


@app.command()
def refuse(role: Annotated[str, ROLE], by: Annotated[str, BY], why: Annotated[str, WHY]) -> None:
    """Keep the champion: no later run promotes the candidate that waits."""
    from training.releases.promotion import refuse_candidate

    _require_role(role)
    print_json(asdict(refuse_candidate(_find_home(), role, by=by, why=why)))


@app.command()
def restore(role: Annotated[str, ROLE]) -> None:
    """Write a lost or broken champion file again from the history; a whole one stays."""
    from training.releases.champion import restore_pointer as put_back

    _require_role(role)
    print_json(asdict(put_back(_find_home(), role)))


def _find_home() -> Path:
    from warehouse.home import require_home

    return require_home(load_settings().home_path())


def _require_role(role: str) -> None:
    from training.role import list_roles

    if role not in list_roles():
        fail(f"unknown role {role!r:.40}; known: {', '.join(list_roles())}", 2)
