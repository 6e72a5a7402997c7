"""An empty page cache, as data larger than memory meets it. On a virtual machine the host may still hold the pages."""

import os
from pathlib import Path

SWITCH = Path("/proc/sys/vm/drop_caches")


class PageCacheKept(Exception):  # noqa: N818  (a fact about the machine that the result reports)
    """The system does not let this process empty the page cache."""


def drop_page_cache() -> None:
    """Write back what is dirty, then drop every clean page of the machine, inodes and directories too.

    Raises:
        PageCacheKept: not allowed here; only root may, and some containers refuse root as well.
    """
    os.sync()
    try:
        SWITCH.write_text("3\n")
    except OSError as error:
        raise PageCacheKept(f"{SWITCH}: {error.strerror}; cold runs need root on the machine itself") from error
