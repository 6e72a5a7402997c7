"""A training process that saves its state beside every batch, until it is killed."""

import json
import os
import signal
import sys
from pathlib import Path

import dataset_rt as drt
from dataset_rt_torch import make_dataloader


def main(cache: str, saved: str, start: str, batches: str) -> None:
    """Print the ids of so many batches, each once the state behind it is on disk; then die."""
    runtime = drt.DatasetRuntime(num_workers=2)
    dataset = runtime.cached_dataset([Path(cache)], reader_config=drt.ReaderConfig(seed=5))
    loader = make_dataloader(
        dataset, 4, num_workers=2, multiprocessing_context=start, persistent_workers=True, prefetch_factor=4
    )
    printed = 0
    while True:
        for batch in loader:
            Path(saved).write_text(json.dumps(loader.state_dict()))
            print(json.dumps(batch["sample_id"].tolist()), flush=True)
            printed += 1
            if printed == int(batches):
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])
