"""Imports what a test wants to break off: `import_worker.py SAVED ROOT NUM_PROC SLOW_AFTER`.

After SLOW_AFTER samples it says `slow` and goes on at 200 samples a second.
"""

import os
import signal
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets

import dataset_rt as drt
import dataset_rt_hf as hf
import dataset_rt_hf.source


def main() -> None:
    # Shells start background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    saved, root, num_proc, slow_after = sys.argv[1:]
    samples = 0
    plain = hf.HFSource.__iter__

    def slow(self):
        nonlocal samples
        for sample in plain(self):
            samples += 1
            if samples == int(slow_after):
                print("slow", flush=True)
            if samples >= int(slow_after):
                time.sleep(0.005)
            yield sample

    hf.HFSource.__iter__ = slow
    results = hf.import_dataset(
        datasets.load_from_disk(saved),
        drt.DatasetRuntime(num_workers=2),
        root,
        reader_config=drt.ReaderConfig(),
        name="rows",
        num_proc=int(num_proc),
    )
    for result in results.values():
        result.unwrap()


if __name__ == "__main__":
    main()
