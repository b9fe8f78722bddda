"""Untrusted servers that eat the machine: memory, processes, disk, descriptors."""

from tests.hostile.case import Case

EATERS = {
    "memory": Case("x = []\nwhile True: x.append(bytearray(8 << 20))", "out_of_memory"),
    "shared memory": Case(
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)"
        "; m.write(b'x' * (8 << 20)); x.append(m)",
        "out_of_memory",
    ),
    "memory in files nobody maps": Case(
        "x = []\nwhile True:\n    x.append(os.memfd_create('x'))"
        "\n    os.write(x[-1], b'x' * (4 << 20))",
        "crashed",  # refused: no process of the sandbox need show what it holds
    ),
    "memory in files in flight": Case(
        "import socket\npair = socket.socketpair()\nfor _ in range(100):\n"
        "    f = os.memfd_create('x'); os.write(f, b'x' * (8 << 20))\n"
        "    socket.send_fds(pair[0], [b'x'], [f]); os.close(f)\nserve([tool('held')])",
        "crashed",
        limits={"file_mb": 64},
    ),
    "segments of System V": Case(
        "import ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(100):\n"
        "    number = libc.shmget(0, 8 << 20, 0o1600); assert number >= 0\n"
        "    address = libc.shmat(number, None, 0); ctypes.memset(address, 1, 8 << 20)\n"
        "    libc.shmdt(ctypes.c_void_p(address))\nserve([tool('held')])",
        "crashed",
    ),
    "memory in its folders": Case(
        "for folder in ('/tmp', os.environ['HOME'], '/dev/shm'):\n"
        "    try:\n        for n in range(50):\n"
        "            open(f'{folder}/{n}', 'wb').write(b'x' * (8 << 20))\n"
        "    except OSError: pass\nserve([tool('held')], lambda: time.sleep(1))",
        "out_of_memory",
        limits={"tmp_mb": 512, "file_mb": 64},
    ),
    "memory of many processes": Case(
        "x = []\nfor _ in range(12):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)"
        "\n        time.sleep(600)\ntime.sleep(600)",
        "out_of_memory",
    ),
    "memory while it lists": Case(
        "def eat():\n    x = []\n    while True: x.append(bytearray(8 << 20))\n"
        "serve([tool('a')], eat)",
        "out_of_memory",
    ),
    "forks": Case("while True: os.fork()", "too_many_processes", limits={"memory_mb": 1024}),
    "forks that leave the group": Case(
        "while True:\n    if os.fork() == 0: os.setsid()",
        "too_many_processes",
        limits={"memory_mb": 1024},
    ),
    "threads": Case(
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(600,)).start()",
        "too_many_processes",
    ),
    "the disk": Case(
        "f = 0\nwhile True:\n    f += 1; open(f'/tmp/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "home": Case(
        "f, home = 0, os.environ['HOME']\n"
        "while True:\n    f += 1; open(f'{home}/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "shared memory files": Case(
        "f = 0\nwhile True:\n    f += 1; open(f'/dev/shm/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "one large file": Case("open('/tmp/f', 'wb').write(b'x' * (64 << 20))", "disk_full"),
    "one large file with holes": Case("os.truncate(os.open('/tmp/f', 66), 1 << 40)", "disk_full"),
    "inodes": Case(
        "f = 0\nwhile True:\n    f += 1; os.mkdir(f'/tmp/{f}')",
        "disk_full",
        limits={"memory_mb": 512},
    ),
    "descriptors": Case("x = []\nwhile True: x.append(os.open('/dev/null', 0))", "crashed"),
    "pipes": Case("x = []\nwhile True: x.append(os.pipe())", "crashed"),
}
