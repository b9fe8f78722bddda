"""Tasks on real servers in the sandbox: the reference calls pass, and wrong ones do not."""

import pytest

from assets.outcomes.worlds.catalogue import find_world, list_worlds
from assets.outcomes.worlds.check import prove_tasks
from assets.servers.deploy.policy import DeployPolicy
from tests.support.untrusted_server import require_sandbox


async def prove(world, fit, warehouse):
    require_sandbox()
    row = await prove_tasks(world, fit, DeployPolicy(warehouse.home), warehouse.ledger, "worlds")
    if "registries" in str(row["why"]) or "download failed" in str(row["why"]):
        pytest.skip("the package registries are out of reach")
    return row


@pytest.mark.registry
async def test_tasks_of_a_memory_are_provable_on_its_real_server(warehouse):
    world = find_world("team-memory")
    row = await prove(world, world.servers[0], warehouse)
    assert (row["status"], row["absent"]) == ("ok", [])
    assert {item["status"] for item in row["tasks"]} == {"provable"}
    assert sum(item["perturbed"] for item in row["tasks"]) > 15


SUITED = [(item.world, fit) for item in list_worlds() if item.world for fit in item.world.servers]


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.parametrize(("world", "fit"), SUITED)
async def test_every_shipped_task_holds_on_every_server_it_suits(warehouse, world, fit):
    row = await prove(world, fit, warehouse)
    if row["status"] == "unavailable":
        pytest.skip(row["why"])
    assert row["status"] == "ok", row
    assert {item["status"] for item in row["tasks"]} <= {"provable", "leaky"}
