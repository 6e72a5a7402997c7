"""The metadata table: every rule of `update_metadata`, on both sides, and what the table does to the stream."""

import datetime
import os
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt


@pytest.fixture
def path(cache_of, table):
    return cache_of("kinds", table.to_dicts())


@pytest.fixture
def dataset(open_caches, path):
    return open_caches(path)


@pytest.fixture
def stored(dataset):
    return dataset.get_metadata()


def ids(samples):
    return [sample.sample_id for sample in samples]


def stream_of(dataset, count):
    dataset.set_epoch_len(count)
    return ids(dataset)


# --- The table that is shown


def test_the_first_table_has_identities_stored_columns_and_weights_of_one(dataset, table):
    found = dataset.get_metadata()
    assert found.columns == ["cache_id", "sample_id", *table.columns, "weight"]
    assert found.select(table.columns).equals(table)
    assert found.schema["cache_id"] == found.schema["sample_id"] == pl.UInt64
    assert found.schema["weight"] == pl.Float64
    assert found["weight"].to_list() == [1.0] * 6
    assert found["sample_id"].to_list() == list(range(6))
    assert found["cache_id"].unique().to_list() == dataset.caches["cache_id"].to_list()


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_table_is_shown_as_it_was_set(open_caches, path, shuffle):
    dataset = open_caches(path, shuffle=shuffle)
    given = dataset.get_metadata().reverse().with_columns(weight=pl.Series([3.0, 1.0, 2.0, 0.5, 7.0, 1.0]))
    dataset.update_metadata(given)
    assert dataset.get_metadata().equals(given)


def test_changing_a_shown_table_changes_nothing(dataset, stored):
    shown = dataset.get_metadata()
    shown.insert_column(0, pl.Series("extra", range(6)))
    assert dataset.get_metadata().equals(stored)


@pytest.mark.parametrize("way", ["first", "updated", "shard", "with_metadata"])
def test_changing_a_shown_table_in_place_reaches_no_dataset(dataset, stored, way):
    shown = dataset
    if way != "first":
        dataset.update_metadata(stored)
    if way == "shard":
        shown = dataset.shard(0, 2)
    elif way == "with_metadata":
        shown = dataset.with_metadata(stored)
    table = shown.get_metadata()
    table.drop_in_place("text")
    table[0, "weight"] = 7.0
    assert shown.get_metadata().equals(stored)
    assert dataset.get_metadata().equals(stored)


@pytest.mark.parametrize("way", ["update_metadata", "with_metadata"])
def test_changing_a_given_table_in_place_reaches_no_dataset(dataset, stored, way):
    given = stored.clone()
    edited = getattr(dataset, way)(given) or dataset
    given.drop_in_place("text")
    given[0, "weight"] = 7.0
    assert edited.get_metadata().equals(stored)


# --- Accepted


def test_rows_may_be_removed(dataset, stored):
    dataset.update_metadata(stored.filter(pl.col("sample_id") % 2 == 0))
    assert len(dataset) == 3
    assert ids(dataset) == [0, 2, 4]


def test_rows_may_be_repeated_and_reordered(dataset, stored):
    dataset.update_metadata(stored[[5, 0, 0, 3, 5]])
    assert len(dataset) == 5
    assert ids(dataset) == [5, 0, 0, 3, 5]
    assert dataset.get_metadata().equals(stored[[5, 0, 0, 3, 5]])


def test_removed_rows_may_come_back(dataset, stored):
    dataset.update_metadata(stored.head(1))
    dataset.update_metadata(stored)
    assert ids(dataset) == list(range(6))


def test_columns_are_matched_by_name_in_any_order(dataset, stored):
    dataset.update_metadata(stored.select(reversed(stored.columns)))
    assert dataset.get_metadata().equals(stored)
    assert ids(dataset) == list(range(6))


def test_extra_columns_are_kept_behind_the_weight_and_are_no_part_of_samples(dataset, stored):
    extra = stored.select(
        pl.Series("tags", [["a"], [], None, ["b", "c"], ["d"], ["e"]]),
        pl.all(),
        loss=pl.lit(None, dtype=pl.Float32),
        place=pl.struct("sample_id"),
    )
    dataset.update_metadata(extra)
    shown = dataset.get_metadata()
    assert shown.columns == [*stored.columns, "tags", "loss", "place"]
    assert shown.equals(extra.select(shown.columns))
    assert list(dataset[0].metadata) == stored.columns[2:-1]
    dataset.update_metadata(stored)
    assert dataset.get_metadata().columns == stored.columns


@pytest.mark.parametrize("name", ["*", "^.*$", "^weight$", ""])
def test_columns_may_have_names_that_polars_reads_as_patterns(dataset, stored, name):
    # Such a name once failed after the core had taken the table, and left it with another one than the user saw.
    dataset.update_metadata(stored.head(2).with_columns(pl.Series(name, [8, 9])))
    assert dataset.get_metadata()[name].to_list() == [8, 9]
    assert len(dataset) == dataset.get_metadata().height == 2


def test_stored_columns_may_have_names_that_polars_reads_as_patterns(cache_of, open_caches):
    dataset = open_caches(cache_of("patterns", [{"*": row, "^.*$": None} for row in range(3)]))
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert dataset.get_metadata()["*"].to_list() == [2, 1, 0]
    assert ids(dataset) == [2, 1, 0]


@pytest.mark.parametrize(
    "dtype", [pl.UInt8, pl.UInt64, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64], ids=str
)
def test_weights_may_be_of_any_numeric_type(dataset, stored, dtype):
    weights = pl.Series([1, 2, 3, 4, 5, 100], dtype=dtype)
    dataset.update_metadata(stored.with_columns(weight=weights))
    assert dataset.get_metadata()["weight"].to_list() == [1.0, 2.0, 3.0, 4.0, 5.0, 100.0]
    assert dataset.get_metadata().schema["weight"] == pl.Float64


@pytest.mark.parametrize(
    "weights",
    [
        [5e-324] * 6,
        [1.7e308] * 6,
        [1e-12, 1e12, 1.0, 1.0, 1.0, 1.0],
        [5e-324, 1.7e308, 1.0, 1.0, 1.0, 1.0],
        [2.2e-308, 1e-310, 5e-324, 1e-320, 3e-308, 1e-309],
    ],
    ids=str,
)
def test_weights_may_be_as_small_or_as_large_as_a_float_can(open_caches, path, weights):
    dataset = open_caches(path, shuffle=True)
    given = dataset.get_metadata().with_columns(weight=pl.Series(weights))
    dataset.update_metadata(given)
    assert dataset.get_metadata().equals(given)
    assert len(ids(dataset)) == 6


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt32, pl.Int32])
def test_identities_may_be_of_another_integer_type_with_equal_values(dataset, stored, dtype):
    # A join on a foreign key often leaves a signed type. A cache's number fits in 63 bits, so Int64 holds both.
    dataset.update_metadata(stored.with_columns(pl.col("sample_id").cast(dtype), pl.col("cache_id").cast(pl.Int64)))
    shown = dataset.get_metadata()
    assert shown.schema["cache_id"] == shown.schema["sample_id"] == pl.UInt64
    assert shown.equals(stored)


@pytest.mark.parametrize(
    "dtype", [pl.Categorical, pl.Enum(["a", "", "b", "ä\0", "unused"])], ids=["Categorical", "Enum"]
)
def test_categories_with_equal_text_are_accepted(dataset, stored, dtype):
    dataset.update_metadata(stored.reverse().with_columns(pl.col("text").cast(dtype)))
    assert ids(dataset) == [5, 4, 3, 2, 1, 0]
    assert dataset[0].metadata["text"] == "a"


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_arrow_tables_of_every_text_type_come_in_through_polars(dataset, stored, kind):
    kinds = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
    }
    arrow = stored.to_arrow()
    place = arrow.schema.get_field_index("text")
    values = stored["text"].to_list()
    text = pa.array(values).dictionary_encode() if kind == "dictionary" else pa.array(values, kinds[kind])
    dataset.update_metadata(pl.from_arrow(arrow.set_column(place, "text", text)))
    assert ids(dataset) == list(range(6))


@pytest.mark.parametrize("start", range(6))
def test_sliced_tables_are_read_from_their_own_offsets(dataset, stored, start):
    dataset.update_metadata(stored.slice(start))
    assert ids(dataset) == list(range(start, 6))
    dataset.update_metadata(stored.slice(0, start + 1))
    assert ids(dataset) == list(range(start + 1))
    dataset.update_metadata(stored.slice(start).with_columns(pl.col("text").cast(pl.Categorical)))
    assert ids(dataset) == list(range(start, 6))


def test_tables_of_many_chunks_are_read_whole(dataset, stored):
    parts = [stored.slice(4), stored.slice(0, 2), stored.slice(2, 2)]
    dataset.update_metadata(pl.concat(parts, rechunk=False))
    assert ids(dataset) == [4, 5, 0, 1, 2, 3]


def test_nulls_equal_nulls_and_nan_equals_nan(dataset, stored):
    # Through Python values and back: no buffer is shared, and NaN may have other bits.
    again = pl.DataFrame(stored.to_dicts(), schema=stored.schema).with_columns(
        score=pl.when(pl.col("score").is_nan()).then(-pl.col("score")).otherwise(pl.col("score"))
    )
    dataset.update_metadata(again)
    assert ids(dataset) == list(range(6))


def test_columns_that_are_null_throughout_match(cache_of, open_caches):
    dataset = open_caches(cache_of("nulls", [{"text": None, "x": 1}, {"text": None, "x": 2}]))
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert ids(dataset) == [1, 0]


def test_tables_over_several_caches_may_interleave(cache_of, open_caches):
    first = cache_of("first", [{"x": number} for number in range(3)])
    second = cache_of("second", [{"x": 10 + number} for number in range(3)])
    dataset = open_caches(first, second)
    given = dataset.get_metadata()[[5, 0, 4, 1, 3, 2]]
    dataset.update_metadata(given)
    assert [sample.metadata["x"] for sample in dataset] == [12, 0, 11, 1, 10, 2]


def test_an_update_sets_the_epoch_length_and_resets_the_stream(dataset, stored):
    dataset.set_epoch_len(4)
    ids(dataset)
    assert dataset.position == 4
    dataset.update_metadata(stored.head(5))
    assert (dataset.position, len(dataset)) == (0, 5)
    assert ids(dataset) == [0, 1, 2, 3, 4]


# --- Refused


def altered(column, row, value):
    def alter(frame):
        values = frame[column].to_list()
        values[row] = value
        return frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))

    return alter


def weights_with(row, value):
    return altered("weight", row, value)


REFUSED = {
    "no rows": (lambda frame: frame.clear(), "row"),
    "no cache_id": (lambda frame: frame.drop("cache_id"), "cache_id"),
    "no sample_id": (lambda frame: frame.drop("sample_id"), "sample_id"),
    "no weight": (lambda frame: frame.drop("weight"), "weight"),
    **{
        f"no {name}": (lambda frame, name=name: frame.drop(name), name)
        for name in ("flag", "label", "score", "text", "day", "moment")
    },
    "a renamed column": (lambda frame: frame.rename({"label": "Label"}), "label"),
    "an unknown cache": (altered("cache_id", 3, 12345), "row 3.*12345"),
    "a sample past the end": (altered("sample_id", 4, 6), "row 4.*6"),
    "a huge sample number": (altered("sample_id", 4, 2**64 - 1), f"row 4.*{2**64 - 1}"),
    "a null cache_id": (altered("cache_id", 2, None), "row 2.*cache_id|cache_id.*row 2"),
    "a null sample_id": (altered("sample_id", 2, None), "row 2.*sample_id|sample_id.*row 2"),
    "a negative sample_id": (
        lambda frame: altered("sample_id", 1, -1)(frame.with_columns(pl.col("sample_id").cast(pl.Int64))),
        "row 1.*sample_id|sample_id.*row 1",
    ),
    "text as cache_id": (lambda frame: frame.with_columns(pl.col("cache_id").cast(pl.String)), "cache_id"),
    "floats as sample_id": (lambda frame: frame.with_columns(pl.col("sample_id").cast(pl.Float64)), "sample_id"),
    **{
        f"a weight of {value}": (weights_with(4, value), "row 4.*weight")
        for value in (0.0, -0.0, -1.0, -5e-324, float("nan"), float("inf"), float("-inf"), None)
    },
    "a weight of integer zero": (
        lambda frame: frame.with_columns(weight=pl.Series([1, 1, 0, 1, 1, 1])),
        "row 2.*weight",
    ),
    "text as weight": (lambda frame: frame.with_columns(weight=pl.lit("1")), "weight"),
    "truth values as weight": (lambda frame: frame.with_columns(weight=pl.lit(value=True)), "weight"),
    "nulls as weight": (lambda frame: frame.with_columns(weight=pl.lit(None)), "weight"),
    "lists as weight": (lambda frame: frame.with_columns(weight=pl.lit([1.0])), "weight"),
    "another flag": (altered("flag", 1, value=True), "row 1.*flag"),
    "another label": (altered("label", 5, 2**63 - 2), "row 5.*label"),
    "another score": (altered("score", 3, 1.5000000000000002), "row 3.*score"),
    "another text": (altered("text", 3, "ä"), "row 3.*text"),
    "another case of text": (altered("text", 1, "A"), "row 1.*text"),
    "another day": (altered("day", 4, datetime.date(9999, 12, 30)), "row 4.*day"),
    "another moment": (altered("moment", 2, datetime.datetime(1970, 1, 1)), "row 2.*moment"),
    **{
        f"null instead of a {column}": (altered(column, 0, None), f"row 0.*{column}")
        for column in ("flag", "label", "score", "text", "day", "moment")
    },
    "null instead of NaN": (altered("score", 1, None), "row 1.*score"),
    "NaN instead of null": (altered("score", 2, float("nan")), "row 2.*score"),
    "zero instead of null": (altered("score", 2, 0.0), "row 2.*score"),
    "a number instead of NaN": (altered("score", 1, 0.0), "row 1.*score"),
    "False instead of null": (altered("flag", 2, value=False), "row 2.*flag"),
    "0 instead of null": (altered("label", 3, 0), "row 3.*label"),
    "empty text instead of null": (altered("text", 2, ""), "row 2.*text"),
    "the first day instead of null": (altered("day", 1, datetime.date(1970, 1, 1)), "row 1.*day"),
    "the first moment instead of null": (altered("moment", 1, datetime.datetime(1970, 1, 1)), "row 1.*moment"),
    "nulls filled": (lambda frame: frame.with_columns(pl.col("label").fill_null(0)), "row 3.*label"),
    "values of another row": (lambda frame: frame.with_columns(pl.col("label").reverse()), "row 0.*label"),
    "identities of another row": (lambda frame: frame.with_columns(pl.col("sample_id").reverse()), "row 0"),
    "another category": (
        lambda frame: altered("text", 3, "b")(frame).with_columns(pl.col("text").cast(pl.Categorical)),
        "row 3.*text",
    ),
    "a stored column as text": (lambda frame: frame.with_columns(pl.col("label").cast(pl.String)), "label"),
    "a stored number as truth value": (
        lambda frame: frame.with_columns(label=pl.col("flag")),
        "label",
    ),
    "the first of several rows": (
        lambda frame: frame.with_columns(label=pl.col("label") - pl.col("sample_id").cast(pl.Int64).clip(0, 1)),
        "row 1.*label",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_breaks_a_rule_is_refused_and_the_old_one_stays(dataset, stored, case):
    alter, message = REFUSED[case]
    old = stored[[4, 0, 2, 1]].with_columns(weight=pl.Series([1.0, 2.0, 3.0, 4.0]), extra=pl.lit("note"))
    dataset.update_metadata(old)
    dataset.set_epoch_len(3)
    assert ids(dataset) == [4, 0, 2]
    for reset_stream in (True, False):
        with pytest.raises(drt.MetadataError, match=message):
            dataset.update_metadata(alter(stored), reset_stream=reset_stream)
        with pytest.raises(drt.MetadataError, match=message):
            dataset.with_metadata(alter(stored))
        assert dataset.get_metadata().equals(old)
        assert (dataset.position, len(dataset)) == (3, 3)
    assert ids(dataset) == [1, 4, 0]
    assert isinstance(dataset[0].metadata, dict)


@pytest.mark.parametrize("other", [None, {}, [], "table", 5], ids=repr)
def test_something_that_is_no_table_is_refused(dataset, stored, other):
    with pytest.raises((drt.DatasetRTError, TypeError), match=re.escape(type(other).__name__)):
        dataset.update_metadata(other)
    assert dataset.get_metadata().equals(stored)


def test_a_lazy_frame_is_refused_with_what_to_do(dataset, stored):
    with pytest.raises((drt.DatasetRTError, TypeError), match="collect"):
        dataset.update_metadata(stored.lazy())
    assert dataset.get_metadata().equals(stored)


# --- Running iterators


def test_running_iterators_keep_the_table_they_began_with(dataset, stored):
    running = iter(dataset)
    assert next(running).sample_id == 0
    dataset.update_metadata(stored.tail(2))
    assert ids(running) == [1, 2, 3, 4, 5]
    assert dataset.position == 0
    assert ids(dataset) == [4, 5]


def test_an_iterator_made_before_an_update_keeps_table_and_place_and_moves_nothing(dataset, stored):
    dataset.set_epoch_len(2)
    ids(dataset)
    made = iter(dataset)
    dataset.update_metadata(stored.tail(3))
    assert ids(made) == [2, 3]
    assert dataset.position == 0
    assert ids(dataset) == [3, 4, 5]


# --- The stream


def test_table_order_counts_without_shuffling_only(open_caches, path):
    mixed = [3, 1, 5, 0, 4, 2]
    ordered, shuffled, twin = open_caches(path), open_caches(path, shuffle=True), open_caches(path, shuffle=True)
    rows = shuffled.get_metadata()[mixed]
    ordered.update_metadata(rows)
    shuffled.update_metadata(rows)
    assert ids(ordered) == mixed
    assert stream_of(shuffled, 200) == stream_of(twin, 200)


@pytest.mark.parametrize("seed", range(5))
def test_a_shuffled_table_of_weights_and_repeats_gives_the_same_stream(open_caches, path, seed):
    base = open_caches(path).get_metadata()
    rows = pl.concat([base, base.head(3)]).with_columns(weight=pl.Series(np.geomspace(1e-3, 1e3, 9)))
    expected, dataset = open_caches(path, shuffle=True, seed=7), open_caches(path, shuffle=True, seed=7)
    expected.update_metadata(rows)
    dataset.update_metadata(rows.sample(fraction=1.0, shuffle=True, seed=seed))
    assert stream_of(dataset, 300) == stream_of(expected, 300)


def test_a_table_that_came_through_a_join_gives_the_same_stream(open_caches, path):
    joined, plain = open_caches(path, shuffle=True), open_caches(path, shuffle=True)
    rows = plain.get_metadata().with_columns(group=pl.col("sample_id") % 4)
    counts = rows.group_by("group").agg(pl.len().alias("count"))
    weighted = rows.join(counts, on="group").with_columns(weight=1.0 / pl.col("count")).drop("count")
    joined.update_metadata(weighted)
    plain.update_metadata(rows.with_columns(weight=1.0 / pl.len().over("group")))
    assert stream_of(joined, 300) == stream_of(plain, 300)


def test_extra_columns_play_no_part_in_the_stream(open_caches, path):
    annotated, plain = open_caches(path, shuffle=True), open_caches(path, shuffle=True)
    annotated.update_metadata(plain.get_metadata().with_columns(loss=pl.Series(np.random.default_rng(0).random(6))))
    assert stream_of(annotated, 300) == stream_of(plain, 300)


@pytest.mark.parametrize("weight", [1.0, 2.0, 1e-300, 5e-324, 1e308, 0.1])
def test_equal_weights_of_any_size_draw_alike(open_caches, path, weight):
    weighted, plain = open_caches(path, shuffle=True), open_caches(path, shuffle=True)
    weighted.update_metadata(plain.get_metadata().with_columns(weight=pl.lit(weight)))
    assert stream_of(weighted, 300) == stream_of(plain, 300)


def test_draws_follow_the_weights_and_removed_rows_never_come(open_caches, path):
    dataset = open_caches(path, shuffle=True, seed=1)
    rows = dataset.get_metadata()[[0, 2, 3]].with_columns(weight=pl.Series([1.0, 2.0, 7.0]))
    dataset.update_metadata(rows)
    shares = np.bincount(stream_of(dataset, 20_000), minlength=6) / 20_000
    assert shares[[1, 4, 5]].tolist() == [0, 0, 0]
    assert np.allclose(shares[[0, 2, 3]], [0.1, 0.2, 0.7], atol=0.015)


def test_a_repeated_row_is_drawn_as_often_as_one_of_twice_the_weight(open_caches, path):
    dataset = open_caches(path, shuffle=True, seed=2)
    dataset.update_metadata(dataset.get_metadata()[[0, 1, 1]])
    assert np.allclose(np.bincount(stream_of(dataset, 20_000)) / 20_000, [1 / 3, 2 / 3], atol=0.015)


@pytest.mark.parametrize("shuffle", [False, True])
def test_without_a_reset_the_stream_goes_on_from_where_it_is(open_caches, path, shuffle):
    dataset, twin = (open_caches(path, shuffle=shuffle, seed=4) for _ in range(2))
    rows = dataset.get_metadata()[[5, 1, 3]].with_columns(weight=pl.Series([1.0, 2.0, 4.0]))
    dataset.set_epoch_len(10)
    ids(dataset)
    dataset.update_metadata(rows, reset_stream=False)
    assert (dataset.position, len(dataset)) == (10, 3)
    twin.update_metadata(rows)
    whole = stream_of(twin, 110)
    assert stream_of(dataset, 100) == whole[10:]


def test_with_a_reset_the_same_random_numbers_come_again(open_caches, path):
    dataset = open_caches(path, shuffle=True, seed=4)
    first = stream_of(dataset, 50)
    dataset.update_metadata(dataset.get_metadata())
    assert stream_of(dataset, 50) == first
    dataset.update_metadata(dataset.get_metadata(), reset_stream=False)
    assert stream_of(dataset, 50) != first


# --- with_metadata


def test_with_metadata_gives_an_independent_dataset(dataset, stored):
    ids(dataset)
    dataset.set_epoch_len(2)
    training = dataset.with_metadata(stored.head(4))
    validation = dataset.with_metadata(stored.tail(2).with_columns(fold=pl.lit(1)))
    assert (training.position, len(training), len(validation)) == (0, 4, 2)
    assert (dataset.position, len(dataset)) == (6, 2)
    assert ids(training) == [0, 1, 2, 3]
    assert ids(validation) == [4, 5]
    assert dataset.get_metadata().equals(stored)
    assert "fold" in validation.get_metadata().columns
    training.update_metadata(stored[[5]])
    training.set_epoch_len(2)
    assert ids(training) == [5, 5]
    assert ids(validation) == [4, 5]
    assert ids(dataset) == [0, 1]


def test_with_metadata_keeps_seed_and_mode(open_caches, path):
    dataset, twin = open_caches(path, shuffle=True, seed=11), open_caches(path, shuffle=True, seed=11)
    part = dataset.with_metadata(dataset.get_metadata().tail(4))
    twin.update_metadata(twin.get_metadata().tail(4))
    assert stream_of(part, 100) == stream_of(twin, 100)


def test_a_view_outlives_the_dataset_it_came_from(open_caches, path):
    dataset = open_caches(path)
    part = dataset.with_metadata(dataset.get_metadata().head(2))
    del dataset
    assert ids(part) == [0, 1]


def test_every_draw_of_an_edited_table_is_one_of_its_rows(cache_of, open_caches):
    path = cache_of("many", [drt.CacheInput(b"", {"x": number}) for number in range(2_000)])
    dataset = open_caches(path, shuffle=True)
    kept = dataset.get_metadata().filter(pl.col("x") % 3 == 0)
    dataset.update_metadata(kept.with_columns(weight=pl.col("x") + 1))
    dataset.set_epoch_len(100_000)
    drawn = np.concatenate([batch.column("sample_id").to_numpy() for batch in dataset.iter_batches(1_000)])
    assert set(drawn.tolist()) <= set(kept["sample_id"].to_list())
    assert len(drawn) == 100_000


def test_tables_set_by_several_threads_are_always_shown_with_their_own_population(cache_of, open_caches):
    import threading

    dataset = open_caches(cache_of("digits", [{"label": row} for row in range(50)]))
    table = dataset.get_metadata()

    def update(rows):
        for _ in range(100):
            dataset.update_metadata(table.head(rows))

    threads = [threading.Thread(target=update, args=(rows,)) for rows in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown = dataset.get_metadata()
    assert shown.height == dataset.stream().num_rows
    assert [sample.sample_id for sample in dataset.read(range(shown.height))] == shown["sample_id"].to_list()


UPDATES = (
    "import sys, pathlib, polars as pl, dataset_rt as drt\n"
    "def memory():\n"
    "    status = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
    "    return next(int(line.split()[1]) << 10 for line in status if line.startswith('RssAnon'))\n"
    "dataset = drt.DatasetRuntime(num_workers=2).cached_dataset(sys.argv[1], reader_config=drt.ReaderConfig())\n"
    "kept = iter(dataset)\n"
    "next(kept)\n"
    "def update(count):\n"
    "    for number in range(count):\n"
    "        weight = 1.0 + (pl.int_range(pl.len()) + number) % 7\n"
    "        table = dataset.get_metadata().with_columns(weight=weight)\n"
    "        dataset.update_metadata(table, reset_stream=number % 2 == 0)\n"
    "        iterator = iter(dataset)\n"
    "        next(iterator), dataset.state_dict(), dataset.stream().rows(0, 10)\n"
    "update(8)\n"
    "before = memory()\n"
    "update(int(sys.argv[2]))\n"
    "print(memory() - before)\n"
    "next(kept)\n"
)


def test_updates_of_a_million_rows_leave_no_memory_behind(million):
    count = 1000 if os.environ.get("DATASET_RT_GRID") == "full" else 24
    command = [sys.executable, "-c", UPDATES, str(million), str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=1800)
    # A table of so many rows has 24 MB and its integer weights 8 MB: were only these left of each, it would be 192 MB.
    assert int(done.stdout) < 100_000_000
