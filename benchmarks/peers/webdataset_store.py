"""webdataset: tar files in sequence; shuffled within a buffer of 1,000, which is all that it can."""

from typing import Any

import webdataset

from peers.store import Store


class Webdataset(Store):
    """Shards of at most 256 MB with one file a sample."""

    def write(self) -> int:
        """Write sample by sample."""
        self.folder.mkdir(parents=True)
        pattern = str(self.folder / "%06d.tar")
        with webdataset.ShardWriter(pattern, maxcount=1 << 40, maxsize=256e6, verbose=0) as writer:
            for number, payload in enumerate(self.payloads):
                writer.write({"__key__": f"{number:09d}", "bin": payload})
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Describe both pipelines."""
        shards = sorted(str(path) for path in self.folder.glob("*.tar"))
        records = webdataset.WebDataset(shards, shardshuffle=False)
        self.pipelines = {
            "ordered": records,
            "shuffled": webdataset.WebDataset(shards, shardshuffle=False).shuffle(1000),
        }

    def read(self, pipeline: Any) -> int:
        """Run a pipeline to its end."""
        total = 0
        for sample in pipeline:
            total += sample["bin"][0]
        self.total = total
        return self.payloads.count

    def ordered(self) -> int:
        """Read in order."""
        return self.read(self.pipelines["ordered"])

    def shuffled(self) -> int:
        """Read through the buffer."""
        return self.read(self.pipelines["shuffled"])
