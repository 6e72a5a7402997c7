"""Which rank a pipeline reads for."""

from __future__ import annotations

import json
import os
import threading
import weakref
from typing import Any

import tensorflow as tf

import dataset_rt as drt

__all__ = ["resolve_world"]

# The rank for which a dataset of this process is read.
_ranks: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def resolve_world(
    dataset: drt.CachedDataset | drt.SampleStream,
    *,
    input_context: tf.distribute.InputContext | None,
    rank: int | None,
    world_size: int | None,
    remainder: str,
) -> tuple[int, int, str]:
    """Rank, world size and remainder.

    Raises:
        ConfigError: If they are named twice, one alone, for a view that has them already, or not at all though
            TF_CONFIG names several workers; if one dataset is read for two ranks.
    """
    of_view = dataset.world if isinstance(dataset, drt.CachedDataset) else None
    if (rank is None) != (world_size is None):
        raise drt.ConfigError(f"rank and world_size must be given together, got {rank!r} and {world_size!r}")
    named = (input_context is not None) + (rank is not None) + (of_view is not None)
    if named > 1:
        raise drt.ConfigError(
            "the rank must be named once: by input_context, by rank and world_size, or by a view that shard() made"
        )
    if input_context is not None:
        rank, world_size = input_context.input_pipeline_id, input_context.num_input_pipelines
    if rank is None or world_size is None:
        if of_view is None and workers() > 1:
            raise drt.ConfigError(
                f"TF_CONFIG names {workers()} workers, and each would read all of the data; give input_context (in "
                "distribute_datasets_from_function), or rank=0, world_size=1 where each worker shall read everything"
            )
        if remainder != "extend":
            raise drt.ConfigError(f"remainder must come with a rank, got {remainder!r} alone")
        return of_view or (0, 1, "extend")
    _claim(dataset, rank, world_size)
    return rank, world_size, remainder


def _claim(dataset: drt.CachedDataset | drt.SampleStream, rank: int, world_size: int) -> None:
    """Refuse a second rank on one position: each of its windows would be dealt to one of them alone."""
    if isinstance(dataset, drt.SampleStream):
        return
    with _lock:
        before = _ranks.setdefault(dataset, (rank, world_size))
        if before != (rank, world_size) and before[1] > 1 and world_size > 1:
            raise drt.ConfigError(
                f"this dataset is read for rank {before[0]} of {before[1]} already, got rank {rank} of {world_size}; "
                f"for several pipelines in one process give each dataset.shard({rank}, {world_size})"
            )
        _ranks[dataset] = rank, world_size


def workers() -> int:
    """How many workers TF_CONFIG names."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
        return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError):
        return 0
