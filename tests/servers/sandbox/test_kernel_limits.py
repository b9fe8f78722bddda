"""The filter of system calls: read as the kernel would, and its numbers against libseccomp."""

import ctypes
import ctypes.util
import errno
import struct

import pytest

from assets.servers.sandbox import kernel_limits as limits

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, REFUSED = 0x7FFF0000, 0x00050000


def asked(machine, number, *args, audit=None):
    """What the filter returns for a call: a little interpreter of classic BPF."""
    code = limits.build_filter(machine)
    assert code
    arch = MACHINES[machine][1] if audit is None else audit
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*args, *[0] * (6 - len(args))))
    lines = list(struct.iter_unpack("<HBBI", code))
    place, held = 0, 0
    while True:
        what, yes, no, value = lines[place]
        place += 1
        if what == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif what == 0x06:
            return value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[what]
            place += yes if true else no


@pytest.mark.parametrize("machine", MACHINES)
def test_each_listed_call_fails_and_no_other(machine):
    column = MACHINES[machine][0]
    denied = [pair[column] for pair in limits.DENIED.values() if pair[column] is not None]
    expected = dict.fromkeys(denied, errno.EPERM)
    expected |= {pair[column]: errno.ENOSYS for pair in limits.ABSENT.values()}
    found = {n: asked(machine, n) for n in range(600)}
    # Socket 0 is no family; every other call passes with arguments of nought.
    found.pop(limits.SOCKET[column])
    others = {n: v for n, v in found.items() if v != ALLOW}
    assert others == {n: REFUSED | code for n, code in expected.items()}


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_what_everybody_needs_and_no_call_gives_a_setuid_bit(machine):
    column = MACHINES[machine][0]
    for call in (limits.CLONE[column], limits.UNSHARE[column]):
        assert asked(machine, call, 0x00000100) == ALLOW  # a thread's shared memory
        for bit in range(32):
            if limits.NAMESPACES & 1 << bit:
                assert asked(machine, call, 1 << bit | 0x100) == REFUSED | errno.EPERM
    assert asked(machine, limits.IOCTL[column], 0, 0x5401) == ALLOW
    for typing in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert asked(machine, limits.IOCTL[column], 0, typing) == REFUSED | errno.EPERM
    families = [f for f in range(64) if asked(machine, limits.SOCKET[column], f) == ALLOW]
    assert families == [1, 2, 10, 16]
    column = MACHINES[machine][0]

    def ask(number, place, *values):
        return asked(machine, number, *[0] * place, *values)

    for *numbers, place in limits.MODES.values():
        for bits in (0o4000, 0o2000, 0o6755, 0o4000 | 1 << 32) if numbers[column] else ():
            assert ask(numbers[column], place, bits) == REFUSED | errno.EPERM
        assert numbers[column] is None or ask(numbers[column], place, 0o101777) == ALLOW
    for *numbers, place in limits.OPENS.values():
        for flags in (0o100, 0o102 | 0o2000000, 0o20200000) if numbers[column] else ():
            assert ask(numbers[column], place, flags, 0o4755) == REFUSED | errno.EPERM
            assert ask(numbers[column], place, flags, 0o1777) == ALLOW
            assert ask(numbers[column], place, flags & ~0o20000100, 0o4755) == ALLOW  # no mode


def test_another_architecture_or_numbering_has_no_calls():
    assert asked("x86_64", 0, audit=0x40000003) == REFUSED | errno.ENOSYS  # i386
    assert asked("x86_64", 0x40000000) == REFUSED | errno.ENOSYS  # x32
    assert limits.build_filter("riscv64") is None


def test_numbers_are_those_of_libseccomp():
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not on this host")
    resolve = ctypes.CDLL(name).seccomp_syscall_resolve_name_arch
    calls = {**limits.DENIED, **limits.ABSENT, "clone": limits.CLONE, "unshare": limits.UNSHARE}
    calls |= {"ioctl": limits.IOCTL, "socket": limits.SOCKET}
    calls |= {name: numbers for name, (*numbers, _) in {**limits.MODES, **limits.OPENS}.items()}
    for call, pair in calls.items():
        for column, audit in MACHINES.values():
            number = resolve(ctypes.c_uint32(audit), call.encode())
            if number == -1:
                continue  # newer than this libseccomp
            assert (number if number >= 0 else None) == pair[column], (call, column)
