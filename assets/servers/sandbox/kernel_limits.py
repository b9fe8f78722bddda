"""The system calls that a sandboxed process may not make, as a filter for bubblewrap.

Namespaces, an empty capability set and `no_new_privs` already refuse most of these; the filter
keeps a server away from the kernel code behind them, and closes what no namespace covers: a vsock
reaches the hypervisor from any network namespace, and a setuid program that a server leaves in a
granted folder runs as the folder's owner on the host. Refused calls fail (EPERM, or ENOSYS where
programs know how to do without); they never kill, since runtimes probe for them.
"""

import errno
import platform
import struct

# name: (x86-64, ARM64); None: not a call of that machine.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "memfd_secret": (447, 447),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "statmount": (457, 457),
    "listmount": (458, 458), "setns": (308, 268), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "vhangup": (153, 58),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "clock_adjtime": (305, 266),
    "_sysctl": (156, None), "sysfs": (139, None), "ustat": (136, None),
    "uselib": (134, None), "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
# Programs that meet ENOSYS use the older way: libuv without io_uring, glibc clone for clone3
# (whose flags lie in memory, where a filter cannot read them, as openat2's mode). Segments, queues
# and semaphores of System V and files in memory hold what no process's own set shows: they passed
# 256 MB by 800.
ABSENT: dict[str, tuple[int, int]] = {
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "memfd_create": (319, 279),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone3": (435, 435), "openat2": (437, 437),
}  # fmt: skip
CLONE, UNSHARE, IOCTL, SOCKET = (56, 220), (272, 97), (16, 29), (41, 198)
NAMESPACES = 0x7E020080  # CLONE_NEW*: mnt, cgroup, uts, ipc, user, pid, net, time
# Calls that give a file its mode: (numbers, the argument that is the mode).
ModeCalls = dict[str, tuple[int | None, int | None, int]]
MODES: ModeCalls = {
    "chmod": (90, None, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2), "mknod": (133, None, 1), "mknodat": (259, 33, 2),
    "creat": (85, None, 1),
}  # fmt: skip
# (numbers, the argument that is the flags; the mode follows, and counts where a file is made).
OPENS: ModeCalls = {"open": (2, None, 1), "openat": (257, 56, 2)}
SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into a terminal
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink (getifaddrs)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH = 0, 4  # offsets in seccomp_data

_ALLOW = 0x7FFF0000


def build_filter(machine: str | None = None) -> bytes | None:
    """The filter as an array of `sock_filter`, or None on a machine it has no numbers for."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        return None
    column, audit = _MACHINES[machine]
    lines = [(_LOAD, 0, 0, _ARCH), (_JEQ, 1, 0, audit), _make_failure(errno.ENOSYS)]
    lines.append((_LOAD, 0, 0, _NR))
    if machine == "x86_64":
        lines += [(_JGE, 0, 1, 0x40000000), _make_failure(errno.ENOSYS)]  # the x32 numbering
    for table, code in ((DENIED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                lines += [(_JEQ, 0, 1, number), _make_failure(code)]
    denied = _make_failure(errno.EPERM)
    for call in (CLONE, UNSHARE):
        lines += _match_argument(call[column], 0, [(_JSET, 0, 1, NAMESPACES), denied])
    special = [(_JSET, 0, 1, SET_ID), denied]
    for *numbers, mode in MODES.values():
        if (number := numbers[column]) is not None:
            lines += _match_argument(number, mode, special)
    for *numbers, flags in OPENS.values():
        if (number := numbers[column]) is not None:
            makes = (_JSET, 0, 1 + len(special), _CREATES)
            lines += _match_argument(number, flags, [makes, _load_argument(flags + 1), *special])
    typing = [(_JEQ, 1, 0, _TERMINAL[0]), (_JEQ, 0, 1, _TERMINAL[1]), denied]
    lines += _match_argument(IOCTL[column], 1, typing)
    allowed = [(_JEQ, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)]
    refused = _make_failure(errno.EAFNOSUPPORT)
    lines += _match_argument(SOCKET[column], 0, [*allowed, refused])
    lines.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


_Line = tuple[int, int, int, int]


def _make_failure(code: int) -> _Line:
    return (_RET, 0, 0, 0x00050000 | code)


def _load_argument(place: int) -> _Line:
    return (_LOAD, 0, 0, 16 + 8 * place)  # of 64 bits each; low words come first


def _match_argument(number: int, argument: int, body: list[_Line]) -> list[_Line]:
    """`body` looks at one argument of one call; falling through it allows the call."""
    whole = [_load_argument(argument), *body, (_RET, 0, 0, _ALLOW)]
    return [(_JEQ, 0, len(whole), number), *whole]
