"""Import a Hugging Face dataset of 17,000 films, and train a classifier of genres with and without balanced draws.

The films ship with bokeh-sampledata (OMDb, CC0). Their genres are skewed: a third are dramas, one in fifty is an
action film. Run it twice: the second run finds the cache and reads no film.

    python examples/hf_films.py [FOLDER]    # FOLDER holds the cache, ./films-cache if left out
"""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import bokeh_sampledata
import datasets
import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier

import dataset_rt as drt
import dataset_rt_hf as hf

GENRES = ["Action", "Animation", "Comedy", "Documentary", "Drama", "Horror", "Western"]
EPOCHS = 3
EPOCH_LENGTH = 8_192
BATCH = 256


def load_films() -> datasets.Dataset:
    """Read the films into a Dataset; a row without one of the genres has the label -1."""
    database = next(Path(bokeh_sampledata.__file__).parent.rglob("movies.db"))
    connection = sqlite3.connect(database)
    names = ["Title", "Year", "Runtime", "Genre", "Director", "Writer", "Cast", "imdbRating", "Language", "Country"]
    quoted = ", ".join(f'"{name}"' for name in names)
    rows = connection.execute(f"SELECT {quoted} FROM omdb ORDER BY ID").fetchall()
    connection.close()
    films = datasets.Dataset.from_dict(dict(zip(names, zip(*rows, strict=True), strict=True)))

    def labelled(row: dict[str, str | None]) -> dict[str, int]:
        first = (row["Genre"] or "").split(", ")[0]
        return {"label": GENRES.index(first) if first in GENRES else -1}

    return films.map(labelled).cast_column("label", datasets.ClassLabel(names=GENRES))


def text_of(film: dict[str, str | None]) -> str:
    """What the classifier sees of a film."""
    columns = ("Title", "Director", "Writer", "Cast", "Language", "Country")
    return " ".join(f"{column}={part.strip()}" for column in columns for part in (film[column] or "").split(","))


def train(dataset: drt.CachedDataset) -> tuple[SGDClassifier, npt.NDArray[np.float64]]:
    """Train on what the dataset draws; give the classifier and the share of each genre among the draws."""
    decode = hf.decoder(dataset)
    model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0)
    drawn = np.zeros(len(GENRES))
    dataset.set_epoch_len(EPOCH_LENGTH)
    for _ in range(EPOCHS):
        for batch in dataset.iter_batches(BATCH):
            columns = decode.batch(batch)
            films = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            labels = np.array(columns["label"])
            model.partial_fit(vectors(films), labels, classes=np.arange(len(GENRES)))
            drawn += np.bincount(labels, minlength=len(GENRES))
    return model, drawn / drawn.sum()


def vectors(films: list[dict[str, str | None]]) -> Any:
    """Hash each film's words and names into a sparse matrix of one row a film."""
    hashing = HashingVectorizer(n_features=2**16, lowercase=True, token_pattern=r"[^ ]+")
    return hashing.transform([text_of(film) for film in films])


def main() -> None:
    """Import, split, balance, train, compare."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "films-cache")
    datasets.disable_progress_bars()
    runtime = drt.DatasetRuntime()
    result = hf.import_dataset(
        load_films(), runtime, folder, reader_config=drt.ReaderConfig(seed=1), name="films", class_names=True
    )
    match result:
        case drt.CacheSourcesDatasetSuccess(dataset=dataset, results=[drt.CacheWriteSuccess() as written]):
            pass
        case failure:
            raise SystemExit(str(failure))
    print(f"{written.samples} films, {'found in' if written.reused else 'written to'} {written.path}")

    # Every fifth film is kept for testing; films without one of the genres are left out. No payload is read for this.
    films = dataset.get_metadata().filter(pl.col("label") >= 0)
    held_out = pl.col("sample_id") % 5 == 0
    plain = dataset.with_metadata(films.filter(~held_out))
    balanced = dataset.with_metadata(
        films.filter(~held_out).with_columns((1.0 / pl.len().over("label")).alias("weight"))
    )
    test = hf.decoder(dataset).batch(
        dataset.with_metadata(films.filter(held_out)).read_batch(range(films.filter(held_out).height))
    )
    test_films = [dict(zip(test, values, strict=True)) for values in zip(*test.values(), strict=True)]
    test_labels = np.array(test["label"])

    recalls = {}
    shares = {}
    for name, chosen in (("as it is", plain), ("balanced", balanced)):
        model, shares[name] = train(chosen)
        right = model.predict(vectors(test_films)) == test_labels
        recalls[name] = np.array([right[test_labels == label].mean() for label in range(len(GENRES))])

    print("\n                      drawn              found among the test films")
    print("genre         as it is  balanced     as it is  balanced")
    for label, genre in enumerate(GENRES):
        cells = [shares[name][label] for name in shares] + [recalls[name][label] for name in recalls]
        print(f"{genre:12}  {cells[0]:8.1%}  {cells[1]:8.1%}     {cells[2]:8.1%}  {cells[3]:8.1%}")
    means = [recalls[name].mean() for name in recalls]
    print(f"{'mean':12}  {'':8}  {'':8}     {means[0]:8.1%}  {means[1]:8.1%}")


if __name__ == "__main__":
    main()
