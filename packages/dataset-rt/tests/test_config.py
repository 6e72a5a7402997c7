"""The configurations: defaults, ranges, and messages that name field, value and rule."""

import copy
import decimal
import fractions
import json
import pickle
import re

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

import dataset_rt as drt

MEBIBYTE = 1024 * 1024
KINDS = [drt.ShardCompression, drt.WriterConfig, drt.ReaderConfig]
DEFAULTS = {
    drt.ShardCompression: {"algo": "none", "level": None},
    drt.WriterConfig: {
        "prefetch_size": 64,
        "prefetch_bytes": 64 * MEBIBYTE,
        "max_shard_bytes": 256 * MEBIBYTE,
        "shard_compression": drt.ShardCompression(),
        "show_progress": True,
        "validate_cache": False,
        "on_error": "fail",
    },
    drt.ReaderConfig: {
        "seed": 0,
        "shuffle": True,
        "replacement": True,
        "prefetch_size": 256,
        "prefetch_bytes": 64 * MEBIBYTE,
        "validate_cache": False,
        "verify_reads": True,
        "io": "auto",
    },
}
COUNTS = [
    (drt.WriterConfig, "prefetch_size"),
    (drt.WriterConfig, "prefetch_bytes"),
    (drt.WriterConfig, "max_shard_bytes"),
    (drt.ReaderConfig, "prefetch_size"),
    (drt.ReaderConfig, "prefetch_bytes"),
]
FLAGS = [
    (drt.WriterConfig, "show_progress"),
    (drt.WriterConfig, "validate_cache"),
    (drt.ReaderConfig, "shuffle"),
    (drt.ReaderConfig, "replacement"),
    (drt.ReaderConfig, "validate_cache"),
    (drt.ReaderConfig, "verify_reads"),
]
CHOICES = [
    (drt.ShardCompression, "algo", "must be 'none', 'lz4' or 'zstd'"),
    (drt.WriterConfig, "on_error", "must be 'fail' or 'skip'"),
    (drt.ReaderConfig, "io", "must be 'auto', 'mapped' or 'positioned'"),
]
NAN, INFINITY = float("nan"), float("inf")
NO_INTEGERS = [True, False, np.True_, 5.0, np.float64(5), NAN, INFINITY, np.float32("nan"), "5", b"5", None, [5], {}]
NO_INTEGERS += [np.array([5]), decimal.Decimal(5), fractions.Fraction(5), 5j]
NO_FLAGS = [0, 1, np.int64(1), "true", "yes", None, 1.0, NAN, []]
NO_CHOICES = ["", "NONE", "gzip", None, 1, True, NAN, ["none"], {}]

REFUSED = [
    *[(kind, field, value, "must be an integer") for kind, field in COUNTS for value in NO_INTEGERS],
    *[(kind, field, value, "must be at least 1") for kind, field in COUNTS for value in (0, -1, -(2**70))],
    *[
        (kind, field, value, f"must be at most {2**63 - 1}")
        for kind, field in COUNTS
        for value in (2**63, np.uint64(2**63), 2**100)
    ],
    *[(drt.ReaderConfig, "seed", value, "must be an integer") for value in NO_INTEGERS],
    *[
        (drt.ReaderConfig, "seed", value, "must be in [0, 18446744073709551616)")
        for value in (-1, np.int8(-1), 2**64, 2**65)
    ],
    *[(kind, field, value, "must be True or False") for kind, field in FLAGS for value in NO_FLAGS],
    *[(kind, field, value, rule) for kind, field, rule in CHOICES for value in NO_CHOICES],
    *[
        (drt.ShardCompression, "level", value, "must be an integer or None")
        for value in NO_INTEGERS
        if value is not None
    ],
    *[
        (drt.WriterConfig, "shard_compression", value, "must be a ShardCompression")
        for value in ("zstd", None, 3, ["lz4"])
    ],
]


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_the_documented_ones(kind):
    made = kind()
    assert {name: getattr(made, name) for name in kind.model_fields} == DEFAULTS[kind]


@pytest.mark.parametrize(("kind", "field", "value", "rule"), REFUSED)
def test_a_bad_value_is_refused_by_field_rule_and_value(kind, field, value, rule):
    with pytest.raises(drt.ConfigError) as refused:
        kind(**{field: value})
    assert str(refused.value).startswith(f"{field} {rule}")
    assert str(refused.value).endswith(f"got {value!r}")
    assert isinstance(refused.value, ValueError)


def test_every_field_of_every_configuration_has_values_that_are_refused():
    assert {(kind, field) for kind, field, _, _ in REFUSED} == {
        (kind, field) for kind in KINDS for field in kind.model_fields
    }


@pytest.mark.parametrize(("kind", "field"), [*COUNTS, (drt.ReaderConfig, "seed"), (drt.ShardCompression, "level")])
@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["huge", "huge and negative"])
def test_an_integer_of_any_size_is_refused_with_a_short_message(kind, field, value):
    fields = {"algo": "zstd"} if field == "level" else {}
    with pytest.raises(drt.ConfigError, match=f"^{field} must be ") as refused:
        kind(**fields, **{field: value})
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("level", [23, -131_073, 2**40])
def test_a_zstd_level_outside_its_range_is_refused(level):
    with pytest.raises(drt.ConfigError, match=rf"^level must be in \[-131072, 22\], got {level}$"):
        drt.ShardCompression(algo="zstd", level=level)


@pytest.mark.parametrize("level", [None, -131_072, -1, 0, 1, 22, np.int32(9)])
def test_a_zstd_level_inside_its_range_is_taken(level):
    assert drt.ShardCompression(algo="zstd", level=level).level == level


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_level_is_refused_where_the_algorithm_has_none(algo):
    with pytest.raises(drt.ConfigError, match=rf"^level must be None with algo '{algo}', got 3; only zstd"):
        drt.ShardCompression(algo=algo, level=3)


@pytest.mark.parametrize(("kind", "field"), COUNTS)
@pytest.mark.parametrize("value", [1, 2**63 - 1, np.int64(7), np.uint8(7)])
def test_counts_take_the_whole_range_and_numpy_integers(kind, field, value):
    taken = getattr(kind(**{field: value}), field)
    assert taken == int(value)
    assert type(taken) is int


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, np.uint64(2**64 - 1)])
def test_seeds_take_the_whole_range(seed):
    taken = drt.ReaderConfig(seed=seed).seed
    assert (taken, type(taken)) == (int(seed), int)


@pytest.mark.parametrize(("kind", "field"), FLAGS)
@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_take_python_and_numpy_truth_values(kind, field, value):
    assert getattr(kind(**{field: value}), field) is bool(value)


def test_every_choice_is_taken():
    for algo in ("none", "lz4", "zstd"):
        assert drt.ShardCompression(algo=algo).algo == algo
    for on_error in ("fail", "skip"):
        assert drt.WriterConfig(on_error=on_error).on_error == on_error
    for io in ("auto", "mapped", "positioned"):
        assert drt.ReaderConfig(io=io).io == io


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_field_is_refused_and_the_known_ones_are_listed(kind):
    with pytest.raises(drt.ConfigError, match=rf"^sed is no field of {kind.__name__}, got 42") as refused:
        kind(sed=42)
    for name in kind.model_fields:
        assert name in str(refused.value)


def test_all_bad_fields_are_named_at_once():
    with pytest.raises(
        drt.ConfigError, match="seed must be an integer, got 'x'; prefetch_size must be at least 1, got 0"
    ):
        drt.ReaderConfig(seed="x", prefetch_size=0)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(drt.ConfigError) as refused:
        drt.ReaderConfig(seed="x" * 100_000)
    assert len(str(refused.value)) < 200


def test_a_value_whose_repr_fails_is_refused_by_its_type():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    with pytest.raises(drt.ConfigError, match="seed must be an integer, got an object of type Broken"):
        drt.ReaderConfig(seed=Broken())


def test_compression_may_be_given_as_a_mapping():
    config = drt.WriterConfig(shard_compression={"algo": "zstd", "level": 3})
    assert config.shard_compression == drt.ShardCompression(algo="zstd", level=3)


def test_a_bad_field_of_a_nested_compression_names_the_path_to_it():
    with pytest.raises(drt.ConfigError, match=r"^shard_compression: algo must be .* got 'gzip'$"):
        drt.WriterConfig(shard_compression={"algo": "gzip"})
    with pytest.raises(drt.ConfigError, match=r"^shard_compression: speed is no field of ShardCompression, got 1"):
        drt.WriterConfig(shard_compression={"speed": 1})


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: drt.ReaderConfig.model_validate({"seed": -1}),
        lambda: drt.ReaderConfig.model_validate_json('{"seed": -1}'),
        lambda: drt.ReaderConfig.model_validate_strings({"seed": "-1"}),
        lambda: drt.ReaderConfig().model_copy(update={"seed": -1}),
        lambda: drt.ReaderConfig().model_copy(update={"sed": 1}),
        lambda: drt.ReaderConfig.model_validate({"sed": 1}),
        lambda: drt.ReaderConfig.model_validate(3),
        lambda: drt.ReaderConfig.model_validate_json("{"),
    ],
)
def test_every_way_to_make_a_configuration_refuses_with_the_same_error(misuse):
    with pytest.raises(drt.ConfigError):
        misuse()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prefetch_size": 0}, "prefetch_size must be at least 1, got 0"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be at least 1, got 0"),
        ({"io": "telepathy"}, "io must be "),
        # Python 3.10 cannot add the argument's name to these.
        ({"seed": -1}, "seed|int"),
        ({"seed": 2**64}, "seed|int"),
        ({"prefetch_size": "many"}, "prefetch_size|int"),
        ({"shuffle": "yes"}, "shuffle|bool"),
    ],
    ids=repr,
)
def test_a_configuration_made_around_its_checks_is_refused_when_it_is_used(cache_of, open_caches, fields, message):
    path = cache_of("digits", [{"x": 1}])
    config = drt.ReaderConfig.model_construct(**fields)
    with pytest.raises((drt.ConfigError, TypeError, OverflowError), match=message):
        drt.DatasetRuntime(num_workers=1).cached_dataset(path, reader_config=config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_never_changes(kind):
    made = kind()
    field = next(iter(kind.model_fields))
    before = getattr(made, field)
    with pytest.raises(drt.ConfigError, match=f"^{field} cannot be set to 3: a {kind.__name__} never changes"):
        setattr(made, field, 3)
    with pytest.raises(drt.ConfigError):
        delattr(made, field)
    with pytest.raises(drt.ConfigError):
        made.unknown = 3
    assert getattr(made, field) == before


def test_a_copy_with_another_value_leaves_the_original():
    first = drt.ReaderConfig(seed=1, shuffle=False)
    second = first.model_copy(update={"seed": np.int64(2)})
    assert (first.seed, second.seed, second.shuffle) == (1, 2, False)
    assert first.model_copy() == first


@pytest.mark.parametrize(
    "made",
    [
        drt.ShardCompression(algo="zstd", level=-3),
        drt.WriterConfig(on_error="skip", shard_compression=drt.ShardCompression(algo="lz4")),
        drt.ReaderConfig(seed=2**64 - 1, io="positioned"),
    ],
)
def test_configurations_pickle_copy_compare_hash_and_print(made):
    for again in (
        pickle.loads(pickle.dumps(made)),
        copy.copy(made),
        copy.deepcopy(made),
        type(made).model_validate(made),
        type(made).model_validate(made.model_dump()),
        type(made).model_validate_json(made.model_dump_json()),
        eval(repr(made), vars(drt).copy()),
    ):
        assert again == made
        assert hash(again) == hash(made)
    assert made != type(made)()
    assert repr(made).startswith(f"{type(made).__name__}(")


def test_a_seed_above_63_bits_survives_json():
    made = drt.ReaderConfig(seed=2**64 - 1)
    assert json.loads(made.model_dump_json())["seed"] == 2**64 - 1


def test_inside_another_model_a_refusal_is_that_model_s_own_error():
    class Training(BaseModel):
        reader: drt.ReaderConfig

    assert Training(reader={"seed": 3}).reader == drt.ReaderConfig(seed=3)
    with pytest.raises(ValidationError, match=re.escape("seed must be in [0, 18446744073709551616), got -1")):
        Training(reader={"seed": -1})
