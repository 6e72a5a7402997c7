"""Train a small network on digit images whose classes are balanced by weight; stop it, start it again, lose nothing.

The images are those that ship with scikit-learn, the digits 5 to 9 made rare. The first run stops in the middle of an
epoch, as a run does whose machine is taken away. The second one finds cache and checkpoint and finishes. Under torchrun
every process takes its share: `torchrun --nproc-per-node 2 examples/torch_digits.py`.

    python examples/torch_digits.py [FOLDER]    # FOLDER holds cache and checkpoint, ./digits-cache if left out
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn

import dataset_rt as drt
from dataset_rt_torch import make_dataloader, world

BATCH = 50
EPOCHS = 20
EPOCH_LENGTH = 1_000
STOP_AFTER = 215  # steps of the first run: in the middle of its eleventh epoch
RARE_FROM = 5
KEEP_ONE_RARE_IN = 20
TEST_EVERY = 4


class Digits:
    """Some of the images: a name, and an iterator over payload bytes and metadata."""

    def __init__(self, name: str, *, test: bool) -> None:
        self.name = name
        self.test = test

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Give every fourth image for the test; of the others the digits 5 to 9 are rare."""
        digits = load_digits()
        for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            is_rare = label >= RARE_FROM and number % KEEP_ONE_RARE_IN != 1
            if (number % TEST_EVERY == 0) if self.test else (number % TEST_EVERY and not is_rare):
                yield drt.CacheInput(data=image.astype(np.uint8).tobytes(), metadata={"label": int(label)})


def logits(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Scale grey values from 0..16 to 0..1 and ask the model."""
    found: torch.Tensor = model(batch["data"].flatten(1) / 16.0)
    return found


def main() -> None:
    """Cache, balance, train from the newest checkpoint on, and measure on the test images."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-cache")
    if world()[1] > 1:
        distributed.init_process_group("gloo")
    runtime = drt.DatasetRuntime()
    config = drt.ReaderConfig(seed=1)
    train = runtime.from_cache_sources(Digits("train_v1", test=False), folder, reader_config=config).unwrap()
    test = runtime.from_cache_sources(
        Digits("test_v1", test=True), folder, reader_config=drt.ReaderConfig(shuffle=False)
    ).unwrap()

    # All classes are drawn equally often, however rare they are.
    train.update_metadata(train.get_metadata().with_columns(weight=1.0 / pl.len().over("label")))
    train.set_epoch_len(EPOCH_LENGTH)
    decode_batch = drt.array_decoder("uint8", (8, 8), metadata=["label"])
    loader = make_dataloader(train, BATCH // world()[1], decode_batch=decode_batch)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.parallel.DistributedDataParallel(network) if distributed.is_initialized() else network
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    checkpoint, step = folder / "checkpoint.pt", 0
    is_first_run = not checkpoint.exists()
    if not is_first_run:
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"going on at step {step}: {len(loader)} batches are left of its epoch")

    steps = STOP_AFTER if is_first_run else EPOCHS * EPOCH_LENGTH // BATCH
    while step < steps:
        for batch in loader:
            loss = nn.functional.cross_entropy(logits(model, batch), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    if world()[0] == 0:
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state | {"loader": loader.state_dict()}, checkpoint)

    right = torch.zeros(10)
    total = torch.zeros(10)
    for batch in make_dataloader(test, 256, rank=0, world_size=1, decode_batch=decode_batch):
        labels = batch["label"]
        right += torch.bincount(labels[logits(network, batch).argmax(1) == labels], minlength=10)
        total += torch.bincount(labels, minlength=10)
    common, rare = (float(right[part].sum() / total[part].sum()) for part in (slice(RARE_FROM), slice(RARE_FROM, 10)))
    print(f"after {step} steps: {common:.0%} of the digits 0 to 4 and {rare:.0%} of the rare ones are right")
    if not is_first_run and min(common, rare) < 0.8:
        sys.exit("the rare digits should be learned, too")


if __name__ == "__main__":
    main()
