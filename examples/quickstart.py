"""Cache real digit images once, balance their classes in one expression, and see what it is worth.

The data are the 1,797 handwritten digits that ship with scikit-learn. Of the training part, the digits 5 to 9 are kept
rare: one in twenty. Run it twice: the second run preprocesses nothing.

    python examples/quickstart.py [FOLDER]    # FOLDER holds the cache, ./digits-cache if left out
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import dataset_rt as drt

CLASSES = np.arange(10)
RARE_FROM = 5
KEEP_ONE_RARE_IN = 20
EPOCHS = 10
EPOCH_LENGTH = 2_000
BATCH = 50


def split() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Give images and labels to train on, with few of the digits 5 to 9, and as many of all to test on."""
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.4, random_state=0, stratify=labels
    )
    rank_in_class = np.array([(train_labels[:i] == label).sum() for i, label in enumerate(train_labels)])
    kept = (train_labels < RARE_FROM) | (rank_in_class % KEEP_ONE_RARE_IN == 0)
    return train_images[kept], train_labels[kept], test_images, test_labels


def preprocess(images: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Scale grey values from 0..16 to 0..1; a real pipeline spends its hours here."""
    return (images / 16).astype(np.float32)


class Digits:
    """The source: a name, and an iterator over payload bytes and metadata."""

    name = "digits_rare_5_to_9_v1"

    def __init__(self, images: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> None:
        self.images = images
        self.labels = labels
        self.preprocessed = 0

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Preprocess one image at a time; nothing else is held in memory."""
        for image, label in zip(self.images, self.labels, strict=True):
            self.preprocessed += 1
            yield drt.CacheInput(data=preprocess(image).tobytes(), metadata={"label": int(label)})


def train(dataset: drt.CachedDataset) -> tuple[SGDClassifier, npt.NDArray[np.float64]]:
    """Train a linear classifier on what the dataset draws; give it and the share of each class among the draws."""
    decode = drt.array_decoder("float32", (64,), metadata=["label"])
    model = SGDClassifier(loss="log_loss", alpha=1e-3, random_state=0)
    drawn = np.zeros(len(CLASSES))
    dataset.set_epoch_len(EPOCH_LENGTH)
    for _ in range(EPOCHS):
        # Each loop goes on in the stream where the one before it ended.
        for batch in dataset.iter_batches(BATCH):
            arrays = decode(batch)
            model.partial_fit(arrays["data"], arrays["label"], classes=CLASSES)
            drawn += np.bincount(arrays["label"], minlength=len(CLASSES))
    return model, drawn / drawn.sum()


def expected_shares(metadata: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Give each class's share of the weights, which is its probability at every draw."""
    shares = metadata.group_by("label").agg(pl.col("weight").sum()).sort("label")["weight"].to_numpy()
    return np.asarray(shares / shares.sum())


def main() -> None:
    """Cache, balance, train with and without, and compare."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-cache")
    train_images, train_labels, test_images, test_labels = split()

    source = Digits(train_images, train_labels)
    runtime = drt.DatasetRuntime()
    result = runtime.from_cache_sources(source, folder, reader_config=drt.ReaderConfig(seed=1))
    match result:
        case drt.CacheSourcesDatasetSuccess(dataset=dataset, results=[drt.CacheWriteSuccess() as written]):
            pass
        case failure:
            raise SystemExit(str(failure))
    print(f"preprocessed {source.preprocessed} of {len(train_labels)} images", end="; ")
    print(f"the cache in {written.path} was {'found complete' if written.reused else 'written'}")

    # Two datasets over the same open cache. The second one's weights make every class as likely as any other.
    metadata = dataset.get_metadata()
    balanced_metadata = metadata.with_columns((1.0 / pl.len().over("label")).alias("weight"))
    balanced = dataset.with_metadata(balanced_metadata)

    plain_model, plain_drawn = train(dataset)
    balanced_model, balanced_drawn = train(balanced)

    print("\nclass shares   as it is            balanced")
    print("digit  images  expected   drawn    expected   drawn")
    counts = np.bincount(train_labels)
    rows = zip(expected_shares(metadata), plain_drawn, expected_shares(balanced_metadata), balanced_drawn, strict=True)
    for digit, (plain_share, plain_draw, balanced_share, balanced_draw) in enumerate(rows):
        print(f"{digit:5}  {counts[digit]:6}  {plain_share:8.1%}  {plain_draw:6.1%}", end="    ")
        print(f"{balanced_share:8.1%}  {balanced_draw:6.1%}")

    test = preprocess(test_images)
    rare = test_labels >= RARE_FROM
    print(f"\naccuracy on {len(test_labels)} test images   all  digits 5 to 9")
    for name, model in (("as it is", plain_model), ("balanced", balanced_model)):
        right = model.predict(test) == test_labels
        print(f"{name:29}  {right.mean():5.1%}  {right[rare].mean():13.1%}")


if __name__ == "__main__":
    main()
