"""The stream's order for Grain's DataLoader."""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import grain
import numpy as np

import dataset_rt as drt
from dataset_rt.integers import integer, unsigned
from dataset_rt_jax.integers import at_least_one
from dataset_rt_jax.windows import Windows
from dataset_rt_jax.world import World

__all__ = ["PositionSampler"]


class PositionSampler:
    """A sampler for `grain.DataLoader` whose index leads to a position of the stream, and so to a row.

    Give the loader a `CacheDataSource` of the same dataset and `shard_options=grain.sharding.NoSharding()`: the sampler
    deals the draws to the ranks itself, and moves no position. Grain's states hold at the worker count that they were
    saved with; Grain refuses them where the `repr` of sampler or source differs, so also another table, seed, start,
    epoch length or world size. `state_dict` gives our own, which any worker count and world size takes.

    Args:
        dataset: A `CachedDataset`, whose table and epoch length of now are kept, or a `stream()`.
        epochs: How many windows, or None for all that the stream has.
        start: Position of the first window, which is a whole one then. None: 0 for a stream, and for a dataset where it
            stands. Where a loaded state stands inside a window, its rest is the first of `epochs`.
        rank: This process's number in [0, world_size), default `jax.process_index()`.
        world_size: Number of processes, default `jax.process_count()`.
        remainder: What happens where `world_size` does not divide an epoch; see `CachedDataset.shard`.
        seed: For Grain's random transformations: each draw gets a generator of this seed and its position, so that
            neither workers nor ranks play a part. None: no generators.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        *,
        epochs: int | None = 1,
        start: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
        seed: int | None = None,
    ) -> None:
        world = World(dataset, rank, world_size, remainder)
        self._windows = Windows(dataset, 1, drop_last=False, start=start, world=world)
        self._epochs = None if epochs is None else at_least_one(epochs, "epochs")
        self._seed = None if seed is None else unsigned(seed, "seed")

    def __len__(self) -> int:
        """Number of draws that this rank takes in all epochs; `sys.maxsize` if they have no end."""
        if self._epochs is None:
            return sys.maxsize
        windows = self._windows
        return min(windows.first_elements + (self._epochs - 1) * windows.num_elements, sys.maxsize)

    def __getitem__(self, index: SupportsIndex) -> grain.RecordMetadata:
        """Give the row of this rank's draw number `index`, and its generator.

        Raises:
            IndexError: If `index` is not in [0, len).
            ConfigError: If it is no integer.
        """
        number = integer(index, "index")
        if not 0 <= number < len(self):
            raise IndexError(f"index must be in [0, {len(self)}), got {number}")
        position = int(self._windows.positions(number)[0])
        row = int(self._windows.stream.rows(position, 1)[0])
        generator = None if self._seed is None else np.random.Generator(np.random.Philox(key=[self._seed, position]))
        return grain.RecordMetadata(index=number, record_key=row, rng=generator)

    def state_dict(self, consumed: SupportsIndex) -> dict[str, Any]:
        """Give the state of the stream once this rank has consumed so many draws, for every adapter at any world size.

        Under `remainder="uneven"` ask a rank that is not done: rank 0.

        Args:
            consumed: Draws since `start`, through all epochs. Behind several workers that batch, the loader delivers
                their batches in turns, and a prefix of its batches is a prefix of the draws only after whole turns.

        Raises:
            IndexError: If it is negative.
            ConfigError: If it is no integer.
        """
        return self._windows.state_dict(consumed)

    def __repr__(self) -> str:
        return f"PositionSampler({self._windows!r}, epochs={self._epochs}, seed={self._seed})"
