"""Write the pinned streams of `testdata/order/` by the oracle: `python conformance/pin_streams.py`.

A file that is there is never written again: what it says holds for ever. More cases go into a new file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oracle import MODES, ORDERED, PERMUTATION, REMAINDERS, REPLACEMENT, Stream, permuted_row
from walks import Event, OracleDataset, play

ORDER_FILES = Path(__file__).parent.parent / "testdata" / "order"

# The sources "counted_7" and "counted_10": sample n has the payload str(n) and the one column "number" = n.
CACHES = [("counted_7", 0x6FDA168F2BD60D10, 7), ("counted_10", 0x030C67DA2CCDC57A, 10)]


def stream_cases() -> list[dict[str, Any]]:
    """Draws over rows whose weights are given, by population row numbers."""
    weighted = {
        "one row": [7.0],
        "two rows, one to a million": [1.0, 1e6],
        "harmonic": [1 / (row + 1) for row in range(33)],
        "six hundred decades": [float(f"1e{exponent}") for exponent in range(-300, 301, 50)],
        "subnormals beside each other": [5e-324 * factor for factor in (1, 2, 3, 5, 8, 13)],
        "a subnormal beside the largest": [1.7976931348623157e308, 5e-324],
        "equal, tiny": [1e-300] * 12,
        "powers of two": [2.0**exponent for exponent in range(20)],
        "a heavy row first": [1e15] + [1.0] * 20,
        "a heavy row last": [1.0] * 20 + [1e15],
    }
    seeds_and_starts = [(0, 0), (1, 2**32), (2**64 - 1, 2**63), (2**32, 2**64 - 24)]
    cases = []
    for name, weights in weighted.items():
        for seed, start in seeds_and_starts:
            stream = Stream(REPLACEMENT, seed, weights)
            rows = [stream.row(start + draw) for draw in range(24)]
            case = {"name": name, "mode": REPLACEMENT, "seed": f"{seed:016x}", "start": f"{start:016x}"}
            cases.append(case | {"weights": weights, "rows": rows})
    for mode in (ORDERED, PERMUTATION):
        for population in (1, 2, 3, 17, 1_000, 65_536, 65_537, 2**20, 2**20 + 1, 10_000_019, 2**40, 2**63 - 25):
            for seed, start in seeds_and_starts:
                if mode == PERMUTATION and 1_000 < population <= 65_536 and start:
                    continue  # A whole shuffle by the oracle takes a second.
                if mode == ORDERED and seed:
                    continue
                rows = [
                    position % population if mode == ORDERED else permuted_row(seed, position, population)
                    for position in range(start, start + 24)
                ]
                case = {"name": f"{population} rows", "mode": mode, "seed": f"{seed:016x}", "start": f"{start:016x}"}
                cases.append(case | {"population_rows": population, "rows": rows})
    return cases


def take(iterator: str, count: int) -> Event:
    """Ask an iterator for so many samples or batches, or to its end."""
    return {"do": "take", "iterator": iterator, "count": count}


def iterate(of: str, name: str, batch_size: int | None = None, *, drop_last: bool = False) -> Event:
    """Make an iterator."""
    return {"do": "iterate", "of": of, "as": name, "batch_size": batch_size, "drop_last": drop_last}


def resume(of: str, name: str) -> Event:
    """Restart."""
    return {"do": "resume", "of": of, "as": name}


def shards(of: str, size: int, remainder: str, prefix: str) -> list[Event]:
    """All ranks' views."""
    return [
        {"do": "shard", "of": of, "as": f"{prefix}{rank}", "rank": rank, "size": size, "remainder": remainder}
        for rank in range(size)
    ]


def set_epoch_len(of: str, epoch_len: int) -> Event:
    """Set the length of later windows."""
    return {"do": "set_epoch_len", "of": of, "epoch_len": epoch_len}


def windows_and_restarts() -> list[Event]:
    """An epoch interrupted twice, one broken off, one made before and started late."""
    return [
        iterate("data", "first"),
        take("first", 5),
        resume("data", "later"),
        iterate("later", "rest"),
        take("rest", 4),
        resume("later", "latest"),
        iterate("latest", "unused"),
        set_epoch_len("latest", 6),
        iterate("latest", "end"),
        take("end", 20),
        iterate("latest", "next"),
        take("next", 2),
        take("unused", 3),
        iterate("latest", "after"),
        take("after", 20),
        resume("latest", "last"),
        iterate("last", "whole"),
        take("whole", 20),
    ]


def fewer_ranks(remainder: str) -> list[Event]:
    """Saved inside a window by eight ranks, gone on with by three, then by one."""
    events = [set_epoch_len("data", 29), *shards("data", 8, remainder, "eight")]
    for rank in range(8):
        events += [iterate(f"eight{rank}", f"of_eight{rank}"), take(f"of_eight{rank}", 2)]
    events += [resume("eight5", "between"), *shards("between", 3, remainder, "three")]
    for rank in range(3):
        events += [iterate(f"three{rank}", f"of_three{rank}"), take(f"of_three{rank}", 2)]
    events += [resume("three0", "alone"), iterate("alone", "rest"), take("rest", 40)]
    for rank in range(3):
        events += [take(f"of_three{rank}", 40), iterate(f"three{rank}", f"next{rank}"), take(f"next{rank}", 40)]
    return events


def batches(remainder: str) -> list[Event]:
    """Batches with and without the short last one, on two ranks, and a rest in batches of another size."""
    events = [set_epoch_len("data", 15), *shards("data", 2, remainder, "rank")]
    for rank in range(2):
        for number, drop_last in enumerate((False, True)):
            name = f"batches{rank}{number}"
            events += [iterate(f"rank{rank}", name, 3, drop_last=drop_last), take(name, 1), take(name, 9)]
        events += [iterate(f"rank{rank}", f"one{rank}"), take(f"one{rank}", 1)]
    return [*events, resume("rank1", "alone"), iterate("alone", "rest", 4), take("rest", 9)]


def tables(mode: str) -> list[Event]:
    """The table replaced between and during windows, with the stream reset and not."""
    weights = [1.0] * 9 if mode == PERMUTATION else [1.0, 0.5, 1.0, 2.0, 1e-12, 1.0, 3.0, 1.0, 0.1]
    rows = [16, 3, 3, 8, 0, 11, 3, 7, 12]
    table = [[row, weight] for row, weight in zip(rows, weights, strict=True)]
    return [
        iterate("data", "first"),
        take("first", 5),
        iterate("data", "waiting"),
        {"do": "update", "of": "data", "table": table, "reset": False},
        take("first", 2),
        iterate("data", "second"),
        take("second", 20),
        take("waiting", 3),
        resume("data", "later"),
        iterate("later", "third"),
        take("third", 4),
        {"do": "update", "of": "later", "table": table[:4], "reset": True},
        iterate("later", "fourth"),
        take("fourth", 20),
        take("third", 20),
    ]


def walk_cases() -> list[dict[str, Any]]:
    """Walks over the two caches, with every answer."""
    cases = []
    for mode in MODES:
        scripts = {"windows and restarts": windows_and_restarts(), "tables": tables(mode)}
        for remainder in REMAINDERS:
            scripts[f"eight ranks, three, one: {remainder}"] = fewer_ranks(remainder)
            scripts[f"batches on two ranks: {remainder}"] = batches(remainder)
        for number, (name, events) in enumerate(scripts.items()):
            seed = 2**63 + number
            first = OracleDataset.open([(cache_id, samples) for _, cache_id, samples in CACHES], mode, seed)
            cases.append({"name": name, "mode": mode, "seed": f"{seed:016x}", "events": play(events, first)})
    return cases


def contents() -> dict[str, str]:
    """The files by their names."""
    caches = [{"name": name, "cache_id": f"{number:016x}", "samples": samples} for name, number, samples in CACHES]
    return {
        "streams_v1.json": as_text({}, stream_cases()),
        "walks_v1.json": as_text({"caches": caches}, walk_cases()),
    }


def as_text(head: dict[str, Any], cases: list[dict[str, Any]]) -> str:
    """JSON with a case a line."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, ' "cases": [', ",\n".join(f"  {json.dumps(case)}" for case in cases), " ]", "}", ""])


def main() -> None:
    """Write the files that are not there."""
    for name, text in contents().items():
        path = ORDER_FILES / name
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            print(f"{name} is there and stays as it is{'' if path.read_text() == text else ', though it DIFFERS'}")
        else:
            print(f"wrote {name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
