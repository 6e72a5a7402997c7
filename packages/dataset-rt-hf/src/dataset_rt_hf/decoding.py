"""From a cached sample back to the row of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

import dataset_rt as drt
from dataset_rt_hf.plan import Plan, cache_plans
from dataset_rt_hf.plan_reader import BrokenPayloadError, PlanReader, is_multi_dimensional, numpy_dtype

__all__ = ["Decoder", "decoder"]

_IDENTITY = ("cache_id", "sample_id")


def decoder(
    dataset: drt.CachedDataset,
    *,
    media: bool = False,
    columns: Iterable[str] | None = None,
    arrays: bool = False,
    identities: bool = False,
) -> Decoder:
    """Make what turns the samples of an imported dataset back into its rows.

    Args:
        dataset: A dataset over caches that `import_dataset` wrote.
        media: Whether images, audio and other media are decoded, as `datasets` does it with the
            libraries that it needs for them. Otherwise each is a dict of its original `bytes` and
            the base name of its `path`.
        columns: The columns to give, in this order; None for all.
        arrays: Whether lists of numbers and Array2D to Array5D come as new NumPy arrays of their
            exact type, and not as lists as `datasets` gives them. Lists that hold nulls stay lists.
        identities: Whether `cache_id` and `sample_id` come too, so that losses find their rows.

    Returns:
        A picklable function from a `CachedSample` to the row, a dict, and from a record batch to
        what its `batch` gives; it also has `table`. With `media=True` the row is what the imported
        dataset gives under its index.

    Raises:
        ConfigError: If an argument breaks its rule, a cache was not imported by this package, or
            the caches lack a column.
    """
    if not isinstance(dataset, drt.CachedDataset):
        raise drt.ConfigError(f"dataset must be a CachedDataset, got a {type(dataset).__name__}")
    for name, value in (("media", media), ("arrays", arrays), ("identities", identities)):
        if not isinstance(value, bool):
            raise drt.ConfigError(f"{name} must be True or False, got {value!r}")
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Iterable)):
        raise drt.ConfigError(f"columns must be a sequence of names, got {columns!r}")
    plans = cache_plans(dataset)
    names: list[Any] | None = None if columns is None else list(columns)
    for plan in plans.values():
        for name in names or ():
            if not isinstance(name, str) or name not in plan.features:
                known = ", ".join(map(repr, plan.features))
                raise drt.ConfigError(f"columns must be columns of the imported dataset, got {name!r}; it has {known}")
    chosen = None if names is None else tuple(dict.fromkeys(names))
    for plan in plans.values():
        if arrays:
            _refuse_unshaped(plan, chosen)
        if identities and set(_IDENTITY) & set(plan.features if chosen is None else chosen):
            raise drt.ConfigError(
                "identities=True adds 'cache_id' and 'sample_id', but the dataset has a column of that name; "
                "leave it out by columns="
            )
    return Decoder(plans, media=media, columns=chosen, arrays=arrays, identities=identities)


def _refuse_unshaped(plan: Plan, columns: tuple[str, ...] | None) -> None:
    for name in plan.features if columns is None else columns:
        feature = plan.features[name]
        if is_multi_dimensional(feature) and numpy_dtype(feature) is None:
            raise drt.ConfigError(
                f"arrays=True must be for arrays of numbers or bools, but column {name!r} is {feature}; leave it out "
                "by columns=, or take lists by arrays=False"
            )


class Decoder:
    """Turns samples of an imported dataset into rows; made by `decoder`.

    Nothing about its results depends on earlier calls; it can be pickled and shared between threads.
    """

    def __init__(
        self,
        plans: dict[int, Plan],
        *,
        media: bool,
        columns: tuple[str, ...] | None,
        arrays: bool,
        identities: bool,
    ) -> None:
        self._plans = plans
        self._identities = identities
        # Caches of one plan share what is made for it.
        readings: dict[Plan, PlanReader] = {}
        for plan in plans.values():
            if plan not in readings:
                readings[plan] = PlanReader(plan, media=media, columns=columns, arrays=arrays)
        self._readings = {cache_id: readings[plan] for cache_id, plan in plans.items()}
        self._functions: dict[int, Callable[[bytes], dict[str, Any]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The functions that read stay: each process makes its own."""
        return {**self.__dict__, "_functions": {}}

    def __repr__(self) -> str:
        names = {name: None for reading in self._readings.values() for name in reading.features}
        return f"Decoder(columns={list(names)}, caches={len(self._readings)})"

    def __call__(self, sample: drt.CachedSample | pa.RecordBatch) -> dict[str, Any]:
        """The row of a sample, or what `batch` gives for a record batch.

        So a decoder is right for `decode` of an adapter as well as for `decode_batch`.

        Raises:
            ConfigError: If the sample is of a cache that the decoder was not made for.
            MetadataError: If the payload is no row in the cache's schema, so something else has
                written the cache.
        """
        if isinstance(sample, pa.RecordBatch):
            return self.batch(sample)
        read = self._functions.get(sample.cache_id)
        if read is None:
            read = self._functions[sample.cache_id] = self._reading(sample.cache_id).read_row
        try:
            row = read(sample.data)
        except BrokenPayloadError as error:
            raise drt.MetadataError(f"cache_id {sample.cache_id}, sample_id {sample.sample_id}: {error}") from error
        if self._identities:
            row["cache_id"], row["sample_id"] = sample.cache_id, sample.sample_id
        return row

    def batch(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """The columns of a batch, each a list of one value a sample, as `datasets` gives a slice.

        Args:
            batch: As `iter_batches`, `read_batch` and `fetch_batch` give it.

        Returns:
            Each column's values in the order of the batch; with `identities`, `cache_id` and
            `sample_id` as uint64 arrays.

        Raises:
            ConfigError: As for a single sample, or if the caches' columns differ.
            MetadataError: As for a single sample.
        """
        payloads = batch.column("data").to_pylist()
        ids = batch.column("cache_id").to_numpy()
        groups = self._groups(ids)
        with self._naming_sample(batch):
            if len(groups) == 1:
                columns = groups[0][0].columns(payloads)
            else:
                readings = [self._reading(cache_id) for cache_id in ids.tolist()]
                rows = [reading.read_row(payload) for reading, payload in zip(readings, payloads, strict=True)]
                columns = {name: [row[name] for row in rows] for name in self._shared_names()}
        if self._identities:
            for name in _IDENTITY:
                columns[name] = np.array(batch.column(name).to_numpy(), dtype=np.uint64)
        return columns

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        """The columns of a batch as Arrow holds them in the imported dataset; media are not decoded.

        Args:
            batch: As for `batch`.

        Raises:
            ConfigError: If the batch mixes caches of different features.
            MetadataError: As for a single sample.
        """
        ids = batch.column("cache_id").to_numpy()
        groups = self._groups(ids)
        payloads = batch.column("data")
        with self._naming_sample(batch):
            tables = [reading.stored(payloads.take(pa.array(places)).to_pylist()) for reading, places in groups]
        first = groups[0][0]
        if len(tables) == 1:
            return first.cast(tables[0])
        if any(reading.schema != first.schema for reading, _ in groups):
            raise drt.ConfigError("a batch must be of caches of equal features, got several; read them apart")
        order = np.argsort(np.concatenate([places for _, places in groups]), kind="stable")
        return first.cast(pa.concat_tables(tables).take(pa.array(order)))

    @contextmanager
    def _naming_sample(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Say which sample of a batch cannot be read."""
        try:
            yield
        except BrokenPayloadError:
            for cache_id, sample_id, data in zip(
                *(batch.column(n).to_pylist() for n in (*_IDENTITY, "data")), strict=True
            ):
                self(drt.CachedSample(data, {}, cache_id, sample_id))
            raise

    def _reading(self, cache_id: int) -> PlanReader:
        try:
            return self._readings[cache_id]
        except KeyError:
            raise drt.ConfigError(
                f"samples must be of the caches that the decoder was made for, got one of cache {cache_id:016x}; "
                "make a decoder of the dataset that is read"
            ) from None

    def _groups(self, ids: Any) -> list[tuple[PlanReader, Any]]:
        """Which rows of a batch are of which kind."""
        found: dict[int, tuple[PlanReader, Any]] = {}
        for cache_id in np.unique(ids).tolist():
            reading = self._reading(cache_id)
            places = np.flatnonzero(ids == cache_id)
            known = found.get(id(reading))
            found[id(reading)] = (reading, places if known is None else np.sort(np.concatenate([known[1], places])))
        return list(found.values()) or [(next(iter(self._readings.values())), np.zeros(0, dtype=np.int64))]

    def _shared_names(self) -> list[str]:
        names, *others = [list(reading.features) for reading in self._readings.values()]
        if any(other != names for other in others):
            raise drt.ConfigError("a batch must be of caches with equal columns, got several; choose some by columns=")
        return names
