"""Global arrays: the same batch under every mesh, in one process and in two."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import dataset_rt as drt
from dataset_rt_jax import iter_batches

WORKER = Path(__file__).with_name("distributed_worker.py")
SPECS = [
    PartitionSpec("data"),
    PartitionSpec(),
    PartitionSpec("data", "model"),
    PartitionSpec(None, "model"),
    PartitionSpec(("data", "model")),
    PartitionSpec("model", "data"),
]


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))


def single_process(dataset, batch_size, decode_batch, *, drop_last=False):
    """The batches of the core's own iterator, decoded."""
    return [decode_batch(batch) for batch in dataset.iter_batches(batch_size, drop_last=drop_last)]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_batch_is_the_same_bit_for_bit_under_every_mesh(open_dataset, decode_batch, mesh, spec):
    assert jax.device_count() == 8
    dataset = open_dataset(40)
    # 24 columns wide, so that every axis of the mesh divides them.
    wide = drt.array_decoder("uint8", (24,), metadata=["label"])
    for _ in range(2):
        batches = list(iter_batches(dataset, 8, decode_batch=wide, sharding=NamedSharding(mesh, spec)))
        expected = single_process(_at(open_dataset(40), dataset.position - 40), 8, wide)
        assert len(batches) == len(expected) == 5
        for batch, alone in zip(batches, expected, strict=True):
            assert isinstance(batch["data"], jax.Array)
            assert batch["data"].sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)
            assert batch["data"].dtype == np.uint8
            np.testing.assert_array_equal(np.asarray(batch["data"]), alone["data"])
            np.testing.assert_array_equal(np.asarray(batch["label"]), alone["label"])
            for shard in batch["data"].addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), alone["data"][shard.index])


def _at(dataset, position):
    dataset.load_state_dict({**dataset.state_dict(), "position": position})
    return dataset


def test_without_a_sharding_batches_live_on_the_default_device(open_dataset, decode_batch):
    batches = list(iter_batches(open_dataset(20), 8, decode_batch=decode_batch))
    assert [batch["data"].shape for batch in batches] == [(8, 6), (8, 6), (4, 6)]
    assert {batch["data"].sharding for batch in batches} == {SingleDeviceSharding(jax.local_devices()[0])}
    for batch, alone in zip(batches, single_process(open_dataset(20), 8, decode_batch), strict=True):
        np.testing.assert_array_equal(np.asarray(batch["data"]), alone["data"])


def test_what_decode_gives_is_stacked(open_dataset, drawn, mesh):
    def decode(sample):
        numbers = np.frombuffer(sample.data, np.float32)
        return {"pixels": numbers.reshape(2, 3), "label": sample.metadata["label"], "sample_id": sample.sample_id}

    sharding = NamedSharding(mesh, PartitionSpec("data"))
    numbers = drawn(open_dataset(20), 0, 16)
    batches = iter_batches(open_dataset(20), 8, drop_last=True, decode=decode, sharding=sharding)
    for place, batch in zip((0, 8), batches, strict=True):
        assert batch["pixels"].shape == (8, 2, 3)
        assert np.asarray(batch["pixels"])[:, 0, 0].tolist() == numbers[place : place + 8]
        assert np.asarray(batch["label"]).tolist() == [number % 5 for number in numbers[place : place + 8]]
        assert batch["sample_id"].tolist() == numbers[place : place + 8]


def test_identities_stay_numpy_with_all_64_bits_and_other_integers_are_cut_to_32(open_dataset, decode_batch):
    dataset = open_dataset(20)
    (batch,) = iter_batches(dataset, 20, decode_batch=decode_batch)
    (cache_id,) = dataset.caches["cache_id"].to_list()
    assert cache_id > 2**32
    for name in ("cache_id", "sample_id"):
        assert isinstance(batch[name], np.ndarray)
        assert batch[name].dtype == np.uint64
    assert set(batch["cache_id"].tolist()) == {cache_id}
    assert batch["label"].dtype == jnp.int32
    (wide,) = iter_batches(open_dataset(20), 20, decode_batch=drt.array_decoder("uint64", (3,)))
    (alone,) = single_process(open_dataset(20), 20, drt.array_decoder("uint64", (3,)))
    assert wide["data"].dtype == jnp.uint32
    np.testing.assert_array_equal(np.asarray(wide["data"]), alone["data"] % 2**32)
    # So a loss finds its row.
    worst = int(jnp.argmax(batch["data"][:, 0]))
    assert dataset.get_item(int(batch["cache_id"][worst]), int(batch["sample_id"][worst])).sample_id == max(
        batch["sample_id"]
    )


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u2", "c8"])
def test_big_endian_arrays_take_the_machines_byte_order_with_equal_values(open_dataset, mesh, dtype):
    native = np.dtype(dtype)
    swapped = drt.array_decoder(native.newbyteorder(">"), (24 // native.itemsize,))
    for sharding in (None, NamedSharding(mesh, PartitionSpec("data"))):
        batch = next(iter_batches(open_dataset(20), 8, decode_batch=swapped, sharding=sharding))
        expected = next(iter(single_process(open_dataset(20), 8, swapped)))["data"]
        assert expected.dtype.byteorder == ">"
        assert batch["data"].dtype == native
        np.testing.assert_array_equal(np.asarray(batch["data"]), expected)


@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()], ids=str)
def test_a_decoder_that_refills_an_aligned_buffer_changes_no_batch_that_was_given(open_dataset, mesh, spec):
    memory = np.zeros(8 * 6 * 4 + 64, np.uint8)
    offset = -memory.ctypes.data % 64
    # JAX takes an aligned buffer as it is on the CPU: what comes later would show in the batches before.
    buffer = memory[offset : offset + 8 * 6 * 4].view(np.float32).reshape(8, 6)
    assert buffer.ctypes.data % 64 == 0
    fresh = drt.array_decoder("float32", (6,))

    def refill(batch):
        buffer[:] = fresh(batch)["data"]
        return buffer

    for sharding in (None, NamedSharding(mesh, spec)):
        batches = list(iter_batches(open_dataset(40), 8, decode_batch=refill, sharding=sharding))
        for batch, alone in zip(batches, single_process(open_dataset(40), 8, fresh), strict=True):
            np.testing.assert_array_equal(np.asarray(batch), alone["data"])


def test_a_batch_that_failed_fails_again_and_no_other_comes_in_its_place(open_dataset, decode_batch):
    dataset = open_dataset(40)

    def broken(batch):
        if batch.num_rows == 8 and 16 <= iterator.state_dict()["position"] < 24:
            raise ArithmeticError("the third batch")
        return decode_batch(batch)

    iterator = iter_batches(dataset, 8, decode_batch=broken)
    next(iterator), next(iterator)
    for _ in range(3):
        with pytest.raises(ArithmeticError, match="the third batch"):
            next(iterator)
    assert dataset.state_dict()["position"] == 16


def test_windows_are_reserved_in_the_dataset_at_the_first_batch_and_resumed_from_any(
    open_dataset, decode_batch, drawn, mesh
):
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    dataset = open_dataset(40)
    iterator = iter_batches(dataset, 8, decode_batch=decode_batch, sharding=sharding)
    assert (dataset.position, iterator.__length_hint__()) == (0, 5)
    for step in range(5):
        assert iterator.state_dict()["position"] == 8 * step
        resumed = open_dataset(40)
        resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        rest = iter_batches(resumed, 8, decode_batch=decode_batch, sharding=sharding)
        assert [batch["sample_id"].tolist() for batch in rest] == [
            drawn(dataset, start, 8) for start in range(8 * step, 40, 8)
        ]
        assert next(iterator)["sample_id"].tolist() == drawn(dataset, 8 * step, 8)
        assert dataset.state_dict() == iterator.state_dict()
    assert next(iterator, None) is None
    assert dataset.position == 40


def test_a_short_batch_that_the_mesh_cannot_divide_is_refused_before_the_window_is_touched(
    open_dataset, decode_batch, mesh
):
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    dataset = open_dataset(20)
    dataset.set_epoch_len(18)
    with pytest.raises(drt.ConfigError, match=r"a batch of 2 draws cannot be divided .*drop_last=True"):
        next(iter_batches(dataset, 8, decode_batch=decode_batch, sharding=sharding))
    assert dataset.position == 0
    with pytest.raises(drt.ConfigError, match="a batch of 6 draws cannot be divided"):
        next(iter_batches(dataset, 6, decode_batch=decode_batch, sharding=sharding))
    batches = iter_batches(dataset, 8, drop_last=True, decode_batch=decode_batch, sharding=sharding)
    assert [len(batch["data"]) for batch in batches] == [8, 8]
    assert dataset.position == 18


@pytest.mark.parametrize(
    ("decoded", "found"),
    [
        (lambda batch: batch.to_pydict()["data"], "|S"),
        (lambda batch: {"names": np.array(["a"] * batch.num_rows)}, r"<U1 of shape \[8\] at \['names'\]"),
        (lambda batch: np.zeros(3), r"float64 of shape \[3\]"),
        (lambda batch: np.zeros(8, "f4,i4"), r"of shape \[8\]"),
        (lambda batch: np.zeros(8, np.longdouble), r"float128 of shape \[8\]"),
        (lambda batch: {"scalar": 1}, r"int64 of shape \[\] at \['scalar'\]"),
    ],
)
def test_what_jax_cannot_hold_is_refused_with_its_place(open_dataset, decoded, found):
    with pytest.raises(drt.ConfigError, match=rf"arrays of numbers of shape \[8, \.\.\.\], got .*{found}"):
        next(iter_batches(open_dataset(40), 8, decode_batch=decoded))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "decode or decode_batch must be given"),
        ({"decode": len, "decode_batch": len}, "must not both be given"),
        ({"decode": len, "batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"decode": len, "drop_last": 1}, "drop_last must be True or False, got 1"),
        ({"decode": len, "sharding": PartitionSpec("data")}, "sharding must be a jax.sharding.Sharding"),
    ],
)
def test_arguments_out_of_range_are_refused(open_dataset, arguments, message):
    with pytest.raises(drt.ConfigError, match=message):
        iter_batches(open_dataset(20), **{"batch_size": 8, **arguments})


def test_a_ranks_view_is_refused(open_dataset):
    with pytest.raises(drt.ConfigError, match="must not be a rank's view"):
        iter_batches(open_dataset(20).shard(0, 2), 8, decode=len)


# --- Two processes


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("axes", "spec"),
    [
        ([["data", 4]], ["data"]),
        ([["data", 2], ["model", 2]], ["data", "model"]),
        # The batch lies on an axis that crosses the processes, and each half of the columns in both of them.
        ([["model", 2], ["data", 2]], ["data", "model"]),
        ([["data", 4]], []),
    ],
    ids=["divided", "processes hold halves", "processes hold all rows", "repeated"],
)
def test_two_processes_build_the_batches_of_one_bit_for_bit(open_dataset, cache_of, decode_batch, axes, spec):
    address = f"127.0.0.1:{free_port()}"
    requests = [
        {"process": process, "address": address, "path": str(cache_of(40)), "axes": axes, "spec": spec}
        for process in range(2)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(WORKER), json.dumps(request)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for request in requests
    ]
    try:
        said = [process.communicate(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], [errors for _, errors in said]
    # Gloo says that it has connected, too.
    outcomes = [json.loads(output.splitlines()[-1]) for output, _ in said]

    alone = open_dataset(40)
    expected = []
    for _ in range(2):
        batches = alone.iter_batches(8, drop_last=True)
        expected += [(decode_batch(batch), batches.state_dict()) for batch in batches]
    for outcome in outcomes:
        assert len(outcome["batches"]) == len(expected) == 10
        for batch, (arrays, state) in zip(outcome["batches"], expected, strict=True):
            assert batch["shape"] == list(arrays["data"].shape)
            assert batch["sample_id"] == arrays["sample_id"].tolist()
            assert batch["cache_id"] == arrays["cache_id"].tolist()
            assert batch["total"] == pytest.approx(float(arrays["data"].sum()))
            assert batch["state"] == state
            for index, held in batch["shards"]:
                assert held == arrays["data"][tuple(slice(*part) for part in index)].tolist()
        assert outcome["position"] == 80
    # Together the processes hold every element.
    held = np.zeros((8, 6), bool)
    for outcome in outcomes:
        for index, _ in outcome["batches"][0]["shards"]:
            held[tuple(slice(*part) for part in index)] = True
    assert held.all()
    dealt = [number for step in zip(*(outcome["dealt"] for outcome in outcomes), strict=True) for number in step]
    assert dealt == [sample.sample_id for sample in alone.stream().fetch(range(40))]
