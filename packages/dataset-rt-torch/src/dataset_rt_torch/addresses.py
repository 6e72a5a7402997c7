"""Numbers by which a sampler names records: addresses that no row of a table can have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["ADDRESS", "addresses"]

ADDRESS = 1 << 62
"""The first address: record 0. Indices below it are rows of the table."""


def addresses(records: npt.NDArray[np.uint64]) -> list[int]:
    """Addresses of records, as a batch sampler yields them."""
    found: list[int] = (records + np.uint64(ADDRESS)).tolist()
    return found
