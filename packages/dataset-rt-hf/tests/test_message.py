"""Row messages: any Arrow library reads them, and they depend on nothing but the row."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from dataset_rt_hf.message import encode_rows, row_layout, storage_schema
from dataset_rt_hf.reading import RowReader, read_batch
from hf_rows import CASES, make


def table_of(name: str) -> pa.Table:
    return make(name).with_format("arrow")[:]


def encoded(table: pa.Table) -> list[bytes]:
    layout = row_layout(storage_schema(table.schema))
    return [message for batch in table.to_batches() for message in encode_rows(batch, layout)]


@pytest.mark.parametrize("name", CASES)
def test_pyarrow_reads_every_message_and_finds_nothing_wrong_with_it(name):
    table = table_of(name)
    schema = storage_schema(table.schema)
    batches = [pa.ipc.read_record_batch(message, schema) for message in encoded(table)]
    for batch in batches:
        batch.validate(full=True)
    plain = datasets_plain(table)
    assert str(pa.Table.from_batches(batches).to_pylist()) == str(plain.to_pylist())


def datasets_plain(table: pa.Table) -> pa.Table:
    """The table without extension types, by pyarrow's own ways."""
    columns = []
    for column, kind in zip(table.columns, storage_schema(table.schema).types, strict=True):
        chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
        try:
            columns.append(pa.chunked_array([chunk.cast(kind) for chunk in chunks]))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            columns.append(pa.chunked_array([pa.array(chunk.to_pylist(), kind) for chunk in chunks]))
    return pa.table(columns, names=table.column_names)


@pytest.mark.parametrize("name", CASES)
def test_a_rows_message_is_the_same_in_every_slice_chunk_and_order(name):
    table = table_of(name)
    whole = encoded(table)
    rows = len(table)
    assert [encoded(table.slice(row, 1))[0] for row in range(rows)] == whole
    assert encoded(pa.concat_tables([table.slice(1), table, table.slice(0, 2)])) == [*whole[1:], *whole, *whole[:2]]
    assert encoded(pa.concat_tables([table.slice(row, 1) for row in range(rows)][::-1])) == whole[::-1]
    assert encoded(pa.concat_tables([table.slice(row, 1) for row in range(rows)][::-1]).combine_chunks()) == whole[::-1]
    padded = pa.concat_tables([table] * 5).combine_chunks().slice(rows * 2 + 1, rows)
    assert encoded(padded) == [*whole[1:], whole[0]]


def test_what_lies_under_nulls_plays_no_part():
    second_is_null = pa.py_buffer(b"\x05")

    def with_hidden(hidden: int) -> pa.Table:
        numbers = pa.py_buffer(np.array([1, hidden, 3], dtype=np.int32))
        ends = pa.py_buffer(np.array([0, 1, 1 + hidden % 3, 4], dtype=np.int32))
        children = pa.array([1, hidden, hidden, 3], pa.int64())
        fields = pa.array([1, hidden, 3], pa.int64())
        return pa.table(
            {
                "n": pa.Array.from_buffers(pa.int32(), 3, [second_is_null, numbers]),
                "t": pa.Array.from_buffers(pa.string(), 3, [second_is_null, ends, pa.py_buffer(b"abbc")]),
                "l": pa.Array.from_buffers(pa.list_(pa.int64()), 3, [second_is_null, ends], children=[children]),
                "f": pa.Array.from_buffers(pa.list_(pa.int64(), 1), 3, [second_is_null], children=[fields]),
                "s": pa.StructArray.from_arrays([fields], names=["a"], mask=pa.array([False, True, False])),
            }
        )

    one, other = with_hidden(7), with_hidden(8)
    message = encoded(one)[1]
    assert message == encoded(other)[1]
    assert read_batch(message, storage_schema(one.schema)).to_pylist() == [dict.fromkeys("ntlfs")]


def test_no_byte_of_a_neighbour_is_in_a_message():
    secret = 0x5EC2E75EC2E75EC2
    table = pa.table(
        {
            "n": pa.array([1, secret, 2], pa.int64()),
            "b": pa.array([False, True, False]),
            "l": pa.array([[1], [secret] * 3, [2]], pa.list_(pa.int64())),
            "t": ["a", "SECRET", "b"],
        }
    )
    first, _, last = encoded(table)
    for message in (first, last):
        assert secret.to_bytes(8, "little") not in message
        assert b"SECRET" not in message
    # The booleans' bitmap is one byte, in which the neighbours' bits would stand.
    assert read_batch(first, storage_schema(table.schema)).column("b").buffers()[1].to_pybytes()[:1] == b"\0"


def test_the_bytes_of_a_message_are_pinned():
    # Identities of caches that exist depend on them.
    message = encoded(pa.table({"n": pa.array([1], pa.int16()), "t": ["ab"]}))[0]
    assert message[-24:] == b"\x01\0\0\0\0\0\0\0" + b"\0\0\0\0\x02\0\0\0" + b"ab\0\0\0\0\0\0"
    assert hashlib.sha256(message).hexdigest() == "d2ac4489ebc97953e81ab46e4d5b46e17eb3894c9a7add50f7c55c992e59828b"


@pytest.mark.parametrize("name", CASES)
def test_the_fast_reader_and_pyarrow_agree(name):
    table = table_of(name)
    schema = storage_schema(table.schema)
    reader = RowReader(schema, schema.names)
    for message in encoded(table):
        numbers = reader.numbers(message)
        assert numbers is not None
        if reader.complete:
            assert str(reader.read(message, numbers)) == str(read_batch(message, schema).to_pylist()[0])


def test_the_fast_reader_knows_the_usual_types():
    slow = {name for name in CASES if not RowReader(storage_schema(table_of(name).schema), ["value"]).complete}
    assert {name.split("[")[0].split("(")[0].rstrip("0123456789") for name in slow} == {
        "decimal",
        "date",
        "time",
        "timestamp",
        "duration",
        "fixed_size_binary",
    }
