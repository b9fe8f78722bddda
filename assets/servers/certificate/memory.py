"""Whether the memory limit holds where no process's own set shows what is held: tried for real, in
small sandboxes of their own."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import Launch, SandboxPolicy
from assets.servers.sandbox.watchdog import Watchdog

_LIMIT_MB, _HELD_MB = 64, 192
_WAIT_S, _NOTICE_S = 20.0, 1.5
_PIECE = 8 << 20

_SEGMENTS = """
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
def hold():
    number = libc.shmget(0, PIECE, 0o1600)
    if number < 0:
        raise OSError(ctypes.get_errno(), 'shmget')
    address = libc.shmat(number, None, 0)
    ctypes.memset(address, 120, PIECE)
    libc.shmdt(ctypes.c_void_p(address))
"""
_FLIGHT = """
pair = socket.socketpair()
def hold():
    file = os.memfd_create('x')
    os.write(file, b'x' * PIECE)
    socket.send_fds(pair[0], [b'x'], [file])
    os.close(file)
"""
_FOLDERS = """
import itertools
folders, numbers = ['/tmp', os.environ['HOME'], '/dev/shm'], itertools.count()
def hold():
    while folders:
        try:
            with open(f'{folders[0]}/{next(numbers)}', 'wb') as file:
                file.write(b'x' * PIECE)
            return
        except OSError:
            folders.pop(0)
    raise OSError('full')
"""
_PROGRAM = """
import ctypes, os, socket, time
PIECE = %d
%s
try:
    for _ in range(%d):
        hold()
except BaseException:
    print('refused', flush=True)
else:
    print('held', flush=True)
    time.sleep(60)
"""
MEMORY_ATTEMPTS = {
    name: _PROGRAM % (_PIECE, source, (_HELD_MB << 20) // _PIECE)
    for name, source in {
        "holds_memory_in_system_v_segments": _SEGMENTS,
        "holds_memory_in_flight": _FLIGHT,
        "holds_memory_in_its_folders": _FOLDERS,
    }.items()
}


def try_holding_memory(launch: Launch, policy: SandboxPolicy) -> dict[str, str]:
    """{attempt: `refused`, `worked` or `not run`}. launch: of a Python and its mounts; each
    attempt holds three times the limit and is refused where it may not or is ended for it."""
    small = replace(policy, memory_mb=_LIMIT_MB, tmp_mb=_HELD_MB, file_mb=_HELD_MB, wall_s=_WAIT_S)

    def attempt(source: str) -> str:
        return _run_attempt(replace(launch, argv=(launch.argv[0], "-I", "-c", source)), small)

    with ThreadPoolExecutor(len(MEMORY_ATTEMPTS)) as pool:
        return dict(zip(MEMORY_ATTEMPTS, pool.map(attempt, MEMORY_ATTEMPTS.values()), strict=True))


def _run_attempt(launch: Launch, policy: SandboxPolicy) -> str:
    with start(launch, policy) as jailed, Watchdog(jailed, policy) as watchdog:
        stream = jailed.process.stdout
        line = stream.readline(100).strip() if stream else b""
        ended = line == b"held" and jailed.ends_within(_NOTICE_S)
        jailed.kill()
    if line == b"held" and not ended:
        return "worked"
    ended = watchdog.breach is not None and watchdog.breach.limit == "memory"
    return "refused" if line == b"refused" or ended else "not run"
