"""Watches, refuses or cuts short the system calls of a program, by the kernel's own seccomp filters.

Nothing is put into the watched program: what is tested is the wheel that users get. A process that calls `refuse` gets
an error for a system call from then on; one that calls `hand_over` has its calls held by the kernel until the process
at the other end of a socket, in `watch`, has seen each of them and said what becomes of it. Threads that are started
afterwards are under the same filter. No privilege is needed, only Linux 5.5 or later and one of two processors.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Audit number of the architecture, number of seccomp(2), and the calls that change or open files. What a C library
# takes on one architecture only (there is no `rename` on aarch64) is left out on the other.
X86_64 = {"write": 1, "open": 2, "pwrite64": 18, "flock": 73, "fsync": 74, "fdatasync": 75, "ftruncate": 77}
X86_64 |= {"rename": 82, "mkdir": 83, "rmdir": 84, "unlink": 87, "openat": 257, "mkdirat": 258, "unlinkat": 263}
X86_64 |= {"renameat": 264, "renameat2": 316}
AARCH64 = {"flock": 32, "mkdirat": 34, "unlinkat": 35, "renameat": 38, "ftruncate": 46, "openat": 56, "write": 64}
AARCH64 |= {"pwrite64": 68, "fsync": 82, "fdatasync": 83, "renameat2": 276}
ARCHITECTURES = {"x86_64": (0xC000003E, 317, X86_64), "aarch64": (0xC00000B7, 277, AARCH64)}
AUDIT, SECCOMP, NUMBERS = ARCHITECTURES.get(platform.machine(), (0, 0, {}))
NAMES = {number: name for name, number in NUMBERS.items()}

# Which argument holds a path, the path that it becomes, or a descriptor.
PATHS = {"open": 0, "rename": 0, "mkdir": 0, "rmdir": 0, "unlink": 0} | dict.fromkeys(
    ("openat", "mkdirat", "unlinkat", "renameat", "renameat2"), 1
)
TARGETS = {"rename": 1, "renameat": 3, "renameat2": 3}
FLAGS = {"open": 1, "openat": 2}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

SET_MODE_FILTER, NEW_LISTENER = 1, 8
ALLOW, NOTIFY, ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000
RECEIVE, SEND = 0xC0502100, 0xC0182101
CONTINUE = 1
KILL, INTERRUPT = -1, -2
NOTICE, ANSWER = "=QIIiIQ6Q", "=QqiI"
PATH_MAX = 4096


class Call(NamedTuple):
    """A system call that is about to happen.

    Attributes:
        name: As in the manual's section 2.
        path: The file or folder, by the descriptor's name where the call takes one.
        target: What a renamed path becomes.
        changes: Whether it can change the file system; opening a file only to read it cannot.
    """

    name: str
    path: str
    target: str | None
    changes: bool


class Filter(ctypes.Structure):
    """`struct sock_filter`."""

    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filters", ctypes.POINTER(Filter)))


def install(numbers: list[int], verdict: int, flags: int) -> int:
    """Give this thread, and those that it starts, a verdict for some calls; the answer is a descriptor or 0."""
    load, jump, answer = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 4), (jump, 1, 0, AUDIT), (answer, 0, 0, ALLOW), (load, 0, 0, 0)]
    for number in numbers:
        lines += [(jump, 0, 1, number), (answer, 0, 0, verdict)]
    lines.append((answer, 0, 0, ALLOW))
    filters = (Filter * len(lines))(*(Filter(*line) for line in lines))
    library = ctypes.CDLL(None, use_errno=True)
    no_new_privileges = 38
    library.prctl(no_new_privileges, 1, 0, 0, 0)
    result = library.syscall(SECCOMP, SET_MODE_FILTER, flags, ctypes.byref(Program(len(lines), filters)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def refuse(name: str, number: int) -> None:
    """From now on the call fails with this error number."""
    install([NUMBERS[name]], ERROR | number, 0)


def hand_over(connection: socket.socket) -> None:
    """From now on this process's calls wait for whoever is at the other end of the socket."""
    listener = install(list(NUMBERS.values()), NOTIFY, NEW_LISTENER)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))]
    connection.sendmsg([b"."], ancillary)
    os.close(listener)


def supported() -> bool:
    """Whether this kernel hands calls over."""
    try:
        return watch(lambda: None, lambda call: None) == 0
    except OSError:
        return False


def forked(work: Callable[[], None]) -> int:
    """Do some work in a forked child; give the child's process number."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may return into the code that forked
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    """Wait for a child; its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watch(work: Callable[[], None], decide: Callable[[Call], int | None]) -> int:
    """Do some work in a forked child and decide on each of its calls.

    Args:
        work: What the child does.
        decide: Given a call, None lets it happen, an error number makes it fail, `KILL` kills the child before it, and
            `INTERRUPT` sends Ctrl-C and lets it happen.

    Returns:
        The child's exit code, or the negative number of the signal that ended it.

    Raises:
        OSError: If this kernel does not hand calls over.
    """
    ours, theirs = socket.socketpair()

    def handed_over() -> None:
        try:
            hand_over(theirs)
        except OSError:
            return
        work()

    child = forked(handed_over)
    theirs.close()
    with ours:
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    if not ancillary:
        exit_code(child)
        raise OSError(errno.ENOSYS, "this kernel does not hand system calls over")
    listener = struct.unpack("i", ancillary[0][2])[0]
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    try:
        while poll.poll()[0][1] & select.POLLIN:
            notice = bytearray(struct.calcsize(NOTICE))
            try:
                fcntl.ioctl(listener, RECEIVE, notice)
                identifier, thread, _, number, _, _, *arguments = struct.unpack(NOTICE, notice)
                verdict = decide(described(thread, NAMES[number], arguments))
                if verdict == KILL:
                    os.kill(child, signal.SIGKILL)
                else:
                    if verdict == INTERRUPT:
                        os.kill(child, signal.SIGINT)
                        verdict = None
                    answer = struct.pack(ANSWER, identifier, 0, -(verdict or 0), 0 if verdict else CONTINUE)
                    fcntl.ioctl(listener, SEND, answer)
            except OSError as error:
                # The held thread was killed, or a signal's handler in it comes first and the call will come again.
                if error.errno not in (errno.ENOENT, errno.EINTR, errno.ESRCH, errno.EINPROGRESS):
                    raise
    finally:
        os.close(listener)
    return exit_code(child)


def described(thread: int, name: str, arguments: list[int]) -> Call:
    """What a held thread is about to do."""
    path = text(thread, arguments[PATHS[name]]) if name in PATHS else descriptor(thread, arguments[0])
    if name == "unlinkat" and not path.startswith("/"):
        path = f"{descriptor(thread, arguments[0])}/{path}"
    target = text(thread, arguments[TARGETS[name]]) if name in TARGETS else None
    changes = name not in FLAGS or bool(arguments[FLAGS[name]] & WRITING)
    return Call(name, path, target, changes)


def text(thread: int, address: int) -> str:
    """The path that stands at an address of a held thread."""
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        # A page that is not there may follow the path, so no read goes past the end of its own page.
        found = b""
        while b"\0" not in found and len(found) < PATH_MAX:
            found += memory.read(4096 - (address + len(found)) % 4096)
    return os.fsdecode(found.partition(b"\0")[0])


def descriptor(thread: int, number: int) -> str:
    """The file that a descriptor of a held thread stands for."""
    try:
        return str(Path(f"/proc/{thread}/fd/{number}").readlink())
    except OSError:
        return ""
