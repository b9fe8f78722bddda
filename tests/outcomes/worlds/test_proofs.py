"""Tasks on real servers in the sandbox: the reference calls pass, and wrong ones do not."""

import pytest

from assets.outcomes.worlds.catalogue import find_world, list_worlds
from assets.outcomes.worlds.check import prove_tasks
from assets.outcomes.worlds.session import ServerUnavailable, join_texts, open_session, open_world
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


SUITED = [(one.world, fit) for one in list_worlds() if one.world for fit in one.world.servers]
EACH_SERVER = pytest.mark.parametrize(
    ("world", "fit"), SUITED, ids=lambda one: getattr(one, "id", getattr(one, "name", ""))
)


@pytest.mark.registry
@pytest.mark.slow
@EACH_SERVER
async def test_every_shipped_task_holds_on_every_server_it_suits(warehouse, world, fit):
    row = await prove(world, fit, warehouse)
    if row["status"] == "unavailable":
        pytest.skip(row["why"])
    assert row["status"] == "ok", row
    assert {item["status"] for item in row["tasks"]} <= {"provable", "leaky"}


@pytest.mark.registry
@pytest.mark.slow
@EACH_SERVER
async def test_each_fault_makes_a_call_of_its_tasks_fail(warehouse, tmp_path, world, fit):
    require_sandbox()
    found = {}
    for fault in world.faults:
        with open_world(world, 1, tmp_path / fault.name, fault=fault.name) as opened:
            tasks = [task for task in opened.tasks(1) if fit.id in task.servers]
            policy = DeployPolicy(warehouse.home)
            try:
                async with open_session(opened, fit, policy, warehouse.ledger, "worlds") as session:
                    for task in tasks:
                        results = await session.run_calls(task.calls, timeout_s=12.0)
                        said = " ".join(join_texts(results)).lower()
                        # Some servers answer an error without saying that it is one, or with more
                        # than was asked for.
                        failed = results[-1].status != "ok" or "error" in said
                        failed = failed or bool(results[-1].alarming)
                        failed = failed or not task.check(opened, join_texts(results))
                        found[fault.name, task.name] = failed or said
            except ServerUnavailable as error:
                pytest.skip(str(error))
    assert set(found.values()) <= {True}, found
