"""One process of the recipes for Lightning and Accelerate; it writes what it was given to train on."""

import json
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import dataset_rt as drt
from dataset_rt_torch import StreamBatchSampler, StreamDataset, StreamIterableDataset, collate_samples, make_dataloader

DECODE = drt.array_decoder("u1", 6, metadata=("label",))


def opened(cache: str) -> drt.CachedDataset:
    return drt.DatasetRuntime(num_workers=1).cached_dataset([Path(cache)], reader_config=drt.ReaderConfig(seed=5))


def with_lightning(cache: str, folder: str, processes: str, inject: str) -> None:
    """Fit for one epoch; the loader is made where Lightning asks for it, when the ranks are known."""
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 5)
            self.seen: list[int] = []

        def train_dataloader(self) -> Any:
            return make_dataloader(opened(cache), 4, decode_batch=DECODE)

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            self.seen += batch["sample_id"].tolist()
            return nn.functional.cross_entropy(self.layer(batch["data"].float()), batch["label"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    model = Model()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=int(processes),
        strategy="ddp" if int(processes) > 1 else "auto",
        use_distributed_sampler=inject == "inject",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model)
    Path(folder, f"rank-{trainer.global_rank}.json").write_text(json.dumps(model.seen))


def with_accelerate(cache: str, folder: str, kind: str) -> None:
    """Go through one epoch; model and optimizer are prepared, the loader as `kind` says."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    dataset = opened(cache)
    model = nn.Linear(6, 5)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if kind in ("left out", "prepared"):
        loader: Any = make_dataloader(dataset, 4, decode_batch=DECODE)
        if kind == "prepared":
            loader = accelerator.prepare(loader)
    elif kind == "plain prepared":
        sampler = StreamBatchSampler(dataset, 4)
        samples = StreamDataset(dataset, decode_batch=DECODE)
        loader = accelerator.prepare(DataLoader(samples, batch_sampler=sampler, collate_fn=collate_samples))
    else:
        batches = StreamIterableDataset(dataset, 4, decode_batch=DECODE)
        loader = accelerator.prepare(DataLoader(batches, batch_size=None, collate_fn=collate_samples))
    seen: list[int] = []
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(batch["data"].float()), batch["label"]))
        optimizer.step()
        seen += batch["sample_id"].tolist()
    Path(folder, f"rank-{accelerator.process_index}.json").write_text(json.dumps(seen))
    accelerator.end_training()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.filterwarnings("ignore")
    what, *arguments = sys.argv[1:]
    {"lightning": with_lightning, "accelerate": with_accelerate}[what](*arguments)
