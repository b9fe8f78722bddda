"""Whom `evaluate` and `agent-eval` ask: models named on the command line, loaded or refused."""

from typing import TYPE_CHECKING

from orchestration.cli.terminal import fail
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from serving.repair.revision import Revise
    from training.evaluation.caller.plan import TestPlan
    from training.evaluation.predictors.interface import Predictor
    from warehouse.llm.roles import Role
    from warehouse.store import Warehouse

_ENDPOINT, CHAMPION = "endpoint:", "champion"


def load_predictors(
    settings: Settings,
    warehouse: "Warehouse",
    models: list[str],
    plan: "TestPlan",
    max_new: int | None,
) -> list["Predictor"]:
    """Who is asked, each loaded now: a name that is none is told before anything is paid."""
    from training.evaluation.predictors.baseline import BaselinePredictor

    made = [
        _load_predictor(settings, warehouse, name, plan, max_new) for name in dict.fromkeys(models)
    ]
    labels = [one.label for one in made]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        fail(f"--model: {twice[:60]!r} is named twice; expected different models", 2)
    if len(made) == 1 and made[0].kind != "baseline":
        made.append(BaselinePredictor())
    if len(made) == 1:
        fail("--model baseline alone: expected another model to compare it with", 2)
    return made


def _load_predictor(
    settings: Settings, warehouse: "Warehouse", name: str, plan: "TestPlan", max_new: int | None
) -> "Predictor":
    from training.evaluation.predictors.endpoint import EndpointPredictor
    from training.evaluation.predictors.router import RouterPredictor

    if name == "router":
        return RouterPredictor(warehouse.home)
    if name.startswith(_ENDPOINT):
        role = choose_role(settings, name.removeprefix(_ENDPOINT))
        return EndpointPredictor(role, warehouse.ledger, seed=plan.seeds[0])
    return load_caller(settings, name, max_new)


def load_caller(settings: Settings, name: str, max_new: int | None = None) -> "Predictor":
    """The baseline, or a trained caller by its name or folder, after `constrained:` one that can
    only write calls that fit."""
    from training.evaluation.predictors.adapter import CONSTRAINED, AdapterPredictor, resolve_model
    from training.evaluation.predictors.baseline import BaselinePredictor

    if name in ("baseline", BaselinePredictor.label):
        return BaselinePredictor()
    home = settings.home_path()
    device = settings.training.device
    model = resolve_model(home, name.removeprefix(CONSTRAINED))
    held = name.startswith(CONSTRAINED)
    made = AdapterPredictor(home, model, device=device, max_new=max_new, constrained=held)
    made.load()  # a name that is none is told now, not after the tools were tried
    return made


def list_roles(settings: Settings) -> dict[str, "Role"]:
    """The model roles of the settings by name."""
    from orchestration.factories import make_writer

    return {role.name: role for role in make_writer(settings).roles}


def choose_role(settings: Settings, name: str) -> "Role":
    """A role of the settings, or any model's name at the settings' endpoint."""
    from warehouse.llm.roles import OFFLINE, Role

    if not name:
        fail("--model endpoint: has no model; expected endpoint:ROLE or endpoint:MODEL", 2)
    roles = list_roles(settings)
    if name in roles:
        if roles[name].model == OFFLINE:
            fail(
                f"role {name!r} has no model (model 'offline'), and rules call no tools; set"
                f" roles.{name}.model and roles.{name}.base_url in toolmill.toml, or name a model",
                2,
            )
        return roles[name]
    key = settings.openai_api_key
    if not settings.openai_base_url and key is None:
        fail(
            f"{name[:60]!r} is no role (known: {', '.join(sorted(roles))}), and no endpoint is set"
            " that could have such a model; set OPENAI_BASE_URL (and OPENAI_API_KEY)",
            2,
        )
    return Role(
        "evaluated",
        model=name,
        base_url=settings.openai_base_url,
        api_key=key,
        temperature=0.0,
    )


def open_reviser(settings: Settings, name: str) -> "Revise":
    """The model of the ladder's rung `revise`: `champion`, a trained sidecar by its name or folder,
    or `endpoint:` with a role or any model's name. Fails naming what is there."""
    from extensions.sidecar.predictor import EndpointReviser, LocalReviser
    from orchestration.factories import open_warehouse
    from training.evaluation.predictors.adapter import resolve_model
    from training.evaluation.predictors.endpoint import EndpointPredictor
    from training.releases.in_service import find_model_in_service
    from training.role import get_untrained_model

    if name.startswith(_ENDPOINT):
        role = choose_role(settings, name.removeprefix(_ENDPOINT))
        ledger = open_warehouse(settings).ledger
        return EndpointReviser(EndpointPredictor(role, ledger, stage="revise:sidecar"))
    home = settings.home_path()
    if name == CHAMPION:
        name = find_model_in_service(home, "sidecar").model
        if name == get_untrained_model("sidecar"):
            fail(
                "--revise champion: no sidecar is better than the ladder alone yet, which is what"
                " serves; leave --revise out, name a trained sidecar, or endpoint:MODEL",
                1,
            )
    made = LocalReviser(home, resolve_model(home, name, "sidecar"), device=settings.training.device)
    made.load()
    return made
