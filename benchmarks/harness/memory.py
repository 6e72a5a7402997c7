"""Private memory of this process; the page cache, which mapped files share, is left out."""

import re
from pathlib import Path


def private_bytes() -> int:
    """Give RssAnon in bytes.

    Raises:
        RuntimeError: the system does not tell it.
    """
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError("/proc/self/status holds no RssAnon; memory is measured on Linux only")
    return int(found[1]) * 1024
