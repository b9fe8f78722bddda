"""The catalogue as a whole: how many there are, and eight of them beside eight good servers."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from assets.contracts.canonical import contract_digest
from assets.servers.probe.probe import probe
from tests.hostile.eaters import EATERS
from tests.hostile.escape_suite import ATTEMPTS
from tests.hostile.lists import LISTS
from tests.hostile.test_schemas import HEAVY
from tests.hostile.test_untrusted_servers import CASES, no_process_is_left
from tests.hostile.wire import WIRE
from tests.support.untrusted_server import CONVERSATION, POLICY, require_sandbox, write_launch

# Good servers of different kinds: pages, schemas, prompts, a child process, noise on stderr.
GOOD = [
    "serve([tool('a'), tool('b', description='B')])",
    "serve([tool(f't{i}', inputSchema={'type': 'object', 'properties': {'x': {'type': 'integer',"
    " 'minimum': i}}, 'required': ['x']}) for i in range(300)])",
    "welcome(read()); read()\n"
    "answer(read()['id'], {'tools': [tool('p1')], 'nextCursor': '1'})\n"
    "answer(read()['id'], {'tools': [tool('p2', annotations={'readOnlyHint': True})]})\nread()",
    "import subprocess\nserve([tool(subprocess.check_output(['echo', 'child']).decode().strip())])",
    "os.write(2, b'log\\n' * 2000); serve([tool('loud')])",
    "x = bytearray(40 << 20); serve([tool('large', outputSchema={'type': 'object'})])",
    "import threading\n[threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    " for _ in range(8)]\nserve([tool('threads')])",
    "open(os.environ['HOME'] + '/f', 'wb').write(b'x' * (4 << 20)); serve([tool('writes')])",
]
HOSTILE = [
    EATERS["memory"],
    EATERS["forks"],
    EATERS["threads"],
    EATERS["the disk"],
    WIRE["flood without a newline"],
    WIRE["a daemon is left behind"],
    WIRE["100 MB on standard error"],
    LISTS["a cursor without end"],
]


def test_the_catalogue_holds_more_than_sixty_untrusted_servers():
    assert len(CASES) == len(WIRE) + len(LISTS) + len(EATERS)  # no name twice
    assert len({case.source for case in CASES.values()}) >= len(CASES) - 1
    assert len(CASES) >= 60
    assert len(CASES) + len(ATTEMPTS) + len(HEAVY) >= 200


def outcome(result):
    """What must not depend on the neighbours."""
    digests = [contract_digest(tool) for tool in result.tools]
    return result.status, result.error_kind, result.pages, result.tools, digests


def test_eight_good_servers_beside_eight_hostile_ones_give_what_they_give_alone(tmp_path):
    require_sandbox()
    # The clocks are long here: sixteen servers share what cores there are.
    patient = replace(CONVERSATION, start_s=30.0, idle_s=5.0, list_s=20.0)
    policy = replace(POLICY, wall_s=60.0)

    def meet(item):
        name, source, limits = item
        folder = tmp_path / name
        folder.mkdir()
        return probe(write_launch(folder, source), replace(policy, **limits), patient)

    alone = [meet((f"alone{i}", source, {})) for i, source in enumerate(GOOD)]
    assert [result.error_kind for result in alone] == [None] * len(GOOD)
    good = [(f"good{i}", source, {}) for i, source in enumerate(GOOD)]
    bad = [(f"bad{i}", case.source, dict(case.limits)) for i, case in enumerate(HOSTILE)]
    mixed = [item for pair in zip(bad, good, strict=True) for item in pair]
    with ThreadPoolExecutor(16) as pool:
        results = dict(zip((item[0] for item in mixed), pool.map(meet, mixed), strict=True))
    for place, before in enumerate(alone):
        assert outcome(results[f"good{place}"]) == outcome(before), GOOD[place]
    kinds = [results[f"bad{place}"].error_kind for place in range(len(HOSTILE))]
    assert kinds == [case.kind for case in HOSTILE]
    assert no_process_is_left()
