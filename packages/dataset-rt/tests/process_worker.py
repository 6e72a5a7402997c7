"""A parent in some state and its children, as a program of its own: what it starts by "spawn" imports this file again.

`process_worker.py JSON` with {"method", "state", "paths", "config"}. The parent is "cold" (it has a runtime and nothing
else), "opened" (a dataset, its stream, an edited table's worth of Polars) or "iterated" (an iterator of which 5 samples
were consumed and more read ahead). It prints what two children found, one started by multiprocessing and one by
concurrent.futures, and what came of its own iterator afterwards.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import dataset_rt as drt

CONSUMED = 5
# What a forked child finds here is what its parent had; elsewhere it is empty.
INHERITED: dict[str, Any] = {}


def ids(samples: Any) -> list[int]:
    return [sample.sample_id for sample in samples]


def refusal(call: Callable[[], Any]) -> str:
    """The name of the error that a call raises, and its message."""
    try:
        call()
    except drt.DatasetRTError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


class Unusable:
    """Stands for Polars: any use is an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"polars.{name} was used")


@contextmanager
def without_polars() -> Iterator[None]:
    """What this child was sent or inherited must not touch Polars, whose threads deadlock after a fork."""
    modules = [
        module for name, module in sys.modules.items() if name.startswith("dataset_rt.") and hasattr(module, "pl")
    ]
    assert modules
    polars = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "polars"}
    sys.modules.update(dict.fromkeys(polars, Unusable()))  # type: ignore[arg-type]
    for module in modules:
        module.pl = Unusable()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        sys.modules.update(polars)
        for module in modules:
            module.pl = polars["polars"]  # type: ignore[attr-defined]


def tasks(paths: list[str], config: dict[str, Any], sent: drt.SampleStream | None) -> Iterator[tuple[str, Any]]:
    """Everything that this child can do."""
    with without_polars():
        yield from tasks_without_polars(sent)
    runtime = INHERITED.get("runtime") or drt.DatasetRuntime(num_workers=2)
    mine = runtime.cached_dataset(paths, reader_config=drt.ReaderConfig(**config))
    yield "own", ids(mine)
    yield "own batches", [number for batch in mine.iter_batches(8) for number in batch["sample_id"].to_pylist()]
    try:
        # Enough Polars to start its threads.
        mine.update_metadata(mine.get_metadata().sort("sample_id", descending=True).head(7))
        yield "own table", mine.get_metadata()["sample_id"].to_list()
    except drt.ConfigError as error:
        yield "own table", str(error)


def tasks_without_polars(sent: drt.SampleStream | None) -> Iterator[tuple[str, Any]]:
    """Everything that this child can do with what it was sent or inherited."""
    if sent is not None:
        yield "sent stream", ids(sent.fetch(range(100)))
        yield "sent table", refusal(sent.table) if INHERITED else "not asked"
    if "dataset" in INHERITED:
        dataset, stream, iterator = (INHERITED[name] for name in ("dataset", "stream", "iterator"))
        yield "stream", ids(stream.fetch(range(100)))
        yield "stream table", refusal(stream.table)
        yield "state", dataset.state_dict()["position"]
        if iterator is not None:
            yield "iterator", ids(iterator)
        yield "position", dataset.position
        yield "dataset", ids(dataset)
        yield "batches", [number for batch in dataset.iter_batches(8) for number in batch["sample_id"].to_pylist()]
        yield "rank", ids(dataset.shard(1, 2))
        yield "random access", [dataset[3].sample_id, *ids(dataset.read([5, 2]))]
        yield "get_metadata", refusal(dataset.get_metadata)
        yield "update_metadata", refusal(lambda: dataset.update_metadata(INHERITED["table"]))
        yield "with_metadata", refusal(lambda: dataset.with_metadata(INHERITED["table"]))
        yield "caches", refusal(lambda: dataset.caches)


def child(paths: list[str], config: dict[str, Any], sent: drt.SampleStream | None) -> dict[str, Any]:
    """Do everything; say of each part what came and how long it took."""
    faulthandler.dump_traceback_later(20, exit=True)
    found: dict[str, Any] = {}
    longest, before = 0.0, time.monotonic()
    for name, result in tasks(paths, config, sent):
        now = time.monotonic()
        found[name], longest, before = result, max(longest, now - before), now
    found["longest"] = longest
    faulthandler.cancel_dump_traceback_later()
    return found


def child_of_multiprocessing(connection: Any, *arguments: Any) -> None:
    """As `child`, through a pipe."""
    connection.send(child(*arguments))
    connection.close()


def unsendable(context: Any, pool: ProcessPoolExecutor, thing: Any) -> dict[str, Any]:
    """What happens to one who sends a dataset or an iterator to a child that does not inherit it."""
    started = time.monotonic()
    errors = []
    try:
        context.Process(target=ids, args=(thing,)).start()
    except (drt.ConfigError, TypeError) as error:
        errors.append(f"{type(error).__name__}: {error}")
    error = pool.submit(ids, thing).exception(timeout=20)
    errors.append(f"{type(error).__name__}: {error}")
    return {"errors": errors, "seconds": time.monotonic() - started}


def main() -> None:
    """Be the parent. A watchdog of its own would not survive the fork; whoever started this ends it."""
    request = json.loads(sys.argv[1])
    paths, config, state = request["paths"], request["config"], request["state"]
    context = multiprocessing.get_context(request["method"])
    INHERITED["runtime"] = drt.DatasetRuntime(num_workers=2)
    sent = None
    if state != "cold":
        dataset = INHERITED["runtime"].cached_dataset(paths, reader_config=drt.ReaderConfig(**config))
        # Polars' threads run before the fork.
        INHERITED["table"] = dataset.get_metadata().sort("label").sort("sample_id")
        dataset.update_metadata(INHERITED["table"])
        sent = INHERITED["stream"] = dataset.stream()
        INHERITED.update(dataset=dataset, iterator=None)
        if state == "iterated":
            INHERITED["iterator"] = iter(dataset)
            for _ in range(CONSUMED):
                next(INHERITED["iterator"])

    report: dict[str, Any] = {}
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child_of_multiprocessing, args=(sender, paths, config, sent))
    process.start()
    sender.close()
    report["multiprocessing"] = receiver.recv()
    process.join()
    assert process.exitcode == 0, process.exitcode
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        report["futures"] = pool.submit(child, paths, config, sent).result()
        if state != "cold" and request["method"] != "fork":
            report["unsendable"] = unsendable(context, pool, INHERITED["dataset"])
            report["unsendable iterator"] = unsendable(context, pool, iter(INHERITED["dataset"]))
    if state == "iterated":
        report["parent"] = ids(INHERITED["iterator"])
    print(json.dumps(report))


if __name__ == "__main__":
    main()
