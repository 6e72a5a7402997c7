"""A shard that is cut off while DataLoader workers read it: they have a handler of their own for the signal."""

import subprocess
import sys
from pathlib import Path

import pytest

import dataset_rt as drt

ROWS = 64
PAYLOAD = 40_000

# What is started by spawn imports this program's file again. A plain dataset, as users write them.
PROGRAM = f"""
import mmap, os, signal, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
import dataset_rt as drt

PATH, LOST, METHOD, PERSISTENT = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "persistent"

def cut():
    for shard in PATH.glob("shards/*"):
        os.truncate(shard, 4096)

class Rows(Dataset):
    def __init__(self, stream):
        self.stream = stream

    def __len__(self):
        return {ROWS}

    def __getitem__(self, row):
        (sample,) = self.stream.fetch([row])
        assert str(PATH) in Path("/proc/self/maps").read_text()
        assert sample.data == bytes([row + 1]) * {PAYLOAD}
        return row

class Foreign(Rows):
    def __getitem__(self, row):
        super().__getitem__(row)
        if row == 5:
            LOST.write_bytes(bytes(100_000))
            with LOST.open("r+b") as file:
                lost = mmap.mmap(file.fileno(), 100_000)
            os.truncate(LOST, 10)
            lost[50_000]
        return row

def loader(dataset):
    return DataLoader(
        dataset, batch_size=2, num_workers=2, multiprocessing_context=METHOD, persistent_workers=PERSISTENT, timeout=120
    )

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config = drt.ReaderConfig(shuffle=False, io="mapped")
    stream = drt.DatasetRuntime(num_workers=2).cached_dataset(PATH, reader_config=config).stream()
    try:
        list(loader(Foreign(stream)))
    except RuntimeError as error:
        print("DataLoader worker" in str(error))
    batches = loader(Rows(stream))
    assert torch.cat(list(batches)).tolist() == list(range({ROWS}))
    iterator = iter(batches)
    # One batch of each worker, so that both have opened the cache.
    next(iterator), next(iterator)
    cut()
    try:
        list(iterator)
    except (drt.CacheCorruptError, RuntimeError) as error:
        # Torch makes a RuntimeError of exceptions that are not made from a message alone.
        print("CacheCorruptError" in repr(error), str(PATH / "shards/000000.bin") in str(error))
"""


class Source:
    """Payloads that tell their row."""

    name = "large"

    def __iter__(self):
        return (drt.CacheInput(bytes([row + 1]) * PAYLOAD, {"row": row}) for row in range(ROWS))


@pytest.mark.skipif(sys.platform != "linux", reason="needs linux: elsewhere files are not mapped")
@pytest.mark.parametrize(("method", "workers"), [("fork", "persistent"), ("spawn", "passing")])
def test_loader_workers_give_our_error_for_our_files_and_torchs_for_others(
    tmp_path: Path, method: str, workers: str
) -> None:
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=16 * PAYLOAD + 16)
    (result,) = drt.DatasetRuntime(num_workers=1).write_cache(Source(), tmp_path, writer_config=config)
    assert isinstance(result, drt.CacheWriteSuccess), result
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", str(program)]
    command += [str(result.path), str(tmp_path / "lost"), method, workers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "True"]
    # Torch's handler says so for the file of the others, and for none of ours.
    assert done.stderr.count("Unexpected bus error encountered in worker") == 1, done.stderr
