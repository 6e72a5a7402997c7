"""Who stores payloads beside dataset-rt, in which environment, and how its worker is started."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.environments import Environment, EnvironmentMissing, core_wheel, installed_version
from harness.worker import Worker, WorkerError

OURS = "dataset-rt"
LMDB = "lmdb"
RAW = "bare Python loop"


@dataclass(frozen=True)
class Contender:
    """One way of storing payloads.

    Attributes:
        name: as tables show it.
        target: `module:Class` of its worker.
        requirements: of its environment; empty for what needs the standard library alone.
        distribution: whose version tables show.
        share: the part of many payloads that a slow contender stores, so that a measurement takes seconds. Rates stay
            rates; a smaller set is if anything in its favour.
        options: further keyword arguments of its class.
    """

    name: str
    target: str
    requirements: tuple[str, ...] = ()
    distribution: str = ""
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def count_of(self, count: int) -> int:
        """Give how many of `count` payloads it stores, the first ones: its share, but no fewer than 2,000."""
        return max(int(count * self.share), min(count, 2_000))

    def python(self) -> Path:
        """Make its environment and give the interpreter.

        Raises:
            EnvironmentMissing: it does not install.
        """
        if not self.requirements:
            return Path(sys.executable)
        return Environment(self.target.partition(":")[0].rpartition(".")[2], self.requirements).make()


def ours(name: str = OURS, **options: Any) -> Contender:
    """Give dataset-rt, from the wheel that is measured.

    Args:
        name: as tables show it.
        options: of `peers.ours.Ours`.
    """
    return Contender(name, "peers.ours:Ours", (core_wheel(),), "dataset-rt", options=options)


def lmdb() -> Contender:
    """Give lmdb."""
    return Contender(LMDB, "peers.lmdb_store:Lmdb", ("lmdb==3.0.0",), "lmdb")


def lmdb_with_zstd() -> Contender:
    """Give lmdb with compressed values."""
    requirements = ("lmdb==3.0.0", "zstandard==0.25.0")
    return Contender("lmdb and zstandard", "peers.lmdb_zstd_store:LmdbZstd", requirements, "lmdb")


def raw() -> Contender:
    """Give the bare loop of system calls."""
    return Contender(RAW, "peers.raw:Raw")


def peers() -> list[Contender]:
    """List every other project, each at the version that was the newest when this list was made."""
    return [
        lmdb(),
        Contender("litdata", "peers.litdata_store:Litdata", ("litdata==0.2.76",), "litdata", share=0.25),
        Contender("lance", "peers.lance_store:Lance", ("pylance==14.0.0",), "pylance", share=0.5),
        Contender(
            "array_record", "peers.array_record_store:ArrayRecord", ("array_record==0.8.6",), "array_record", share=0.5
        ),
        Contender("HF datasets", "peers.hf_store:HuggingFace", ("datasets==5.0.0",), "datasets", share=0.25),
        Contender(
            "mosaicml-streaming",
            "peers.mosaicml_store:Mosaicml",
            ("mosaicml-streaming==0.13.0",),
            "mosaicml-streaming",
            share=0.1,
        ),
        Contender(
            "older dataset-rt",
            "peers.older_store:Older",
            ("dataset-rt==0.4.8",),
            "dataset-rt",
            share=0.1,
        ),
        Contender(
            "TFRecord (tf.data)", "peers.tfrecord_store:TfRecord", ("tensorflow-cpu==2.21.0",), "tensorflow-cpu", 0.1
        ),
        Contender("webdataset", "peers.webdataset_store:Webdataset", ("webdataset==1.0.2",), "webdataset", share=0.025),
    ]


@dataclass
class Running:
    """The workers of one set of payloads.

    Attributes:
        workers: by name, in the order of the contenders.
        versions: by name, of those that have one.
        absent: by name, why there is no worker.
    """

    workers: dict[str, Worker] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


@contextmanager
def started(contenders: list[Contender], payloads: Mapping[str, Any], folder: Path) -> Iterator[Running]:
    """Start a worker for each contender that can be had.

    Args:
        contenders: who.
        payloads: as described; a contender's share is taken of `count`.
        folder: each gets a folder in it.
    """
    running = Running()
    with ExitStack() as stack:
        for contender in contenders:
            arguments = {
                "folder": str(folder / contender.name.replace(" ", "-")),
                "payloads": {**payloads, "count": contender.count_of(payloads["count"])},
                **contender.options,
            }
            try:
                python = contender.python()
                running.workers[contender.name] = stack.enter_context(Worker(python, contender.target, arguments))
            except (EnvironmentMissing, WorkerError) as error:
                running.absent[contender.name] = str(error)
                continue
            if contender.distribution:
                running.versions[contender.name] = installed_version(python, contender.distribution)
        yield running
