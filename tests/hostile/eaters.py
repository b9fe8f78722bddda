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
        "out_of_memory",
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
