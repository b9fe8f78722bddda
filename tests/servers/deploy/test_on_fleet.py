"""Which deployments leave this machine, and what they take along."""

import pickle
from dataclasses import replace

import pytest

from assets.servers.deploy.deploy import can_travel, deploy_on, deploy_to_json
from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.package import DeploymentResult, make_failed
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.secrets import SecretSources, ServerSecrets
from warehouse.fleet.fleet import TaskLost

ANSWER = make_failed(ProbeFailure("crashed", "elsewhere")).to_json()


class Elsewhere:
    """Takes what a cluster would be given, as another process would read it."""

    def __init__(self, error=None):
        self.asked, self.error = [], error

    def call(self, fn, *args):
        self.asked.append(pickle.loads(pickle.dumps((fn, args))))
        if self.error:
            raise self.error
        return ANSWER


@pytest.fixture
def recipe():
    return LaunchRecipe(server_id="npm:a", ecosystem="npm", name="a", version="1.0.0")


@pytest.fixture
def policy(tmp_path):
    secret = {"npm:b": ServerSecrets(env={"TOKEN": "env:TOKEN"})}
    return DeployPolicy(
        tmp_path,
        secrets=SecretSources(secret, lambda: b"k" * 32),
        grants={"npm:b": ServerGrant(network="full"), "npm:a": ServerGrant(network="full")},
        confirmed={"npm:b": ("x",)},
        listed=(tmp_path / "mine.json",),
    )


def test_a_package_travels_without_what_concerns_others(recipe, policy):
    fleet = Elsewhere()
    assert deploy_on(fleet, recipe, policy) == ANSWER
    [(fn, (sent, alone))] = fleet.asked
    assert (fn, sent) == (deploy_to_json, recipe)
    assert alone.secrets.of("npm:b") is None
    assert alone.accounts is None
    assert [*alone.grants] == ["npm:a"]
    assert (alone.confirmed, alone.listed) == ({}, ())
    assert alone.home == policy.home


def test_a_lost_worker_is_a_row_that_is_due_at_once(recipe, policy):
    answer = deploy_on(Elsewhere(TaskLost("its worker ended")), recipe, policy)
    probe = DeploymentResult.from_json(answer).probe
    assert (probe.status, probe.error_kind) == ("failed", "worker_lost")
    assert probe.hint.startswith("its worker ended: ")


@pytest.mark.parametrize("here", ["secret", "folder", "volume", "private", "remote"])
def test_what_needs_this_machine_stays(here, recipe, policy, tmp_path):
    grants = {
        "folder": ServerGrant(folders=mount_folders((str(tmp_path),))),
        "volume": ServerGrant(volume=True),
    }
    if here in grants:
        policy = replace(policy, grants={"npm:a": grants[here]})
    elif here == "secret":
        recipe = recipe.model_copy(update={"server_id": "npm:b"})
    else:
        recipe = recipe.model_copy(update={"ecosystem": here})
    assert not can_travel(recipe, policy)
