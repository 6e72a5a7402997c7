"""One line that says where figures come from."""

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """Give the processor's name as the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float:
    """Give the machine's memory in GiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def machine_line() -> str:
    """Name cores, processor, memory, system and Python."""
    return (
        f"{len(os.sched_getaffinity(0))} cores of {processor_name()}, {memory_gib():.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
