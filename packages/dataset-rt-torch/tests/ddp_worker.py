"""One rank of a real process group on the loopback device: what it draws, or what it trains."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import dataset_rt as drt
from dataset_rt_torch import make_dataloader, world

BATCH = 32


def draw(cache: str, folder: str, workers: str, stop_early: str) -> None:
    """Write the batches of two epochs; rank 0 may stop early, and nobody meets at a barrier."""
    rank, _ = world()
    dataset = opened(cache)
    loader = make_dataloader(dataset, 4, num_workers=int(workers))
    epochs = []
    for _ in range(2):
        promised = len(loader)
        batches = []
        for batch in loader:
            batches.append(batch["sample_id"].tolist())
            if stop_early == "yes" and rank == 0:
                time.sleep(1)
                break
        epochs.append({"len": promised, "batches": batches})
    Path(folder, f"rank-{rank}.json").write_text(json.dumps({"epochs": epochs, "position": dataset.position}))


def go_on(cache: str, folder: str, workers: str, saved: str, batches: str) -> None:
    """Load a state if there is one, deliver so many batches, and write them with the state behind them."""
    rank, size = world()
    loader = make_dataloader(opened(cache), 4, num_workers=int(workers))
    if Path(saved).exists():
        loader.load_state_dict(json.loads(Path(saved).read_text()))
    delivered: list[list[int]] = []
    while len(delivered) < int(batches):
        for batch in loader:
            delivered.append(batch["sample_id"].tolist())
            if len(delivered) == int(batches):
                break
    said = {"batches": delivered, "state": loader.state_dict()}
    Path(folder, f"rank-{rank}-of-{size}.json").write_text(json.dumps(said))


def train(cache: str, folder: str, killed_at: str) -> None:
    """Train on digits for two epochs from the newest checkpoint on; die at a step, or write the weights."""
    rank, _ = world()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = make_dataloader(
        opened(cache), BATCH, num_workers=1, decode_batch=drt.array_decoder("u1", 64, metadata=("label",))
    )
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint, step, steps = Path(folder, "checkpoint.pt"), 0, 2 * len(loader)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    while step < steps:
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch["data"].float() / 16), batch["label"])
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 5 == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state | {"loader": loader.state_dict()}, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").replace(checkpoint)
            if step == int(killed_at):
                os.kill(os.getpid(), signal.SIGKILL)
    torch.save({"model": model.state_dict(), "loss": float(loss.detach())}, Path(folder, f"rank-{rank}.pt"))


def opened(cache: str) -> drt.CachedDataset:
    return drt.DatasetRuntime(num_workers=1).cached_dataset([Path(cache)], reader_config=drt.ReaderConfig(seed=5))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    what, *arguments = sys.argv[1:]
    if what == "draw":
        distributed.init_process_group("gloo")
        draw(*arguments)
    elif what == "draw-by-environment":
        draw(*arguments)
    elif what == "go-on":
        distributed.init_process_group("gloo")
        go_on(*arguments)
    else:
        distributed.init_process_group("gloo")
        train(*arguments)
    if distributed.is_initialized() and "yes" not in arguments:
        distributed.destroy_process_group()
