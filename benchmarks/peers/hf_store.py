"""Hugging Face Datasets: an Arrow dataset on disk, read 256 rows at a time."""

import datasets

from peers.store import Store, batches


class HuggingFace(Store):
    """One binary column, saved and loaded from disk."""

    def write(self) -> int:
        """Build from a dictionary and save."""
        datasets.disable_progress_bars()
        dataset = datasets.Dataset.from_dict(
            {"data": list(self.payloads)}, features=datasets.Features({"data": datasets.Value("large_binary")})
        )
        dataset.save_to_disk(str(self.folder))
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Load from disk: mapped files."""
        self.dataset = datasets.load_from_disk(str(self.folder))
        self.wanted = batches(self.order(), self.batch_size)

    def ordered(self) -> int:
        """Iterate batches."""
        total = 0
        for batch in self.dataset.iter(self.batch_size):
            for payload in batch["data"]:
                total += payload[0]
        self.total = total
        return self.payloads.count

    def shuffled(self) -> int:
        """Ask for lists of rows."""
        total = 0
        for numbers in self.wanted:
            for payload in self.dataset[numbers]["data"]:
                total += payload[0]
        self.total = total
        return self.payloads.count
