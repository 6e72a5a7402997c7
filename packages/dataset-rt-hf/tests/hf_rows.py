"""Exact equality of rows, and rows of every feature type of datasets, None wherever the type allows it."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Features, LargeList, List, Sequence, Translation, TranslationVariableLanguages, Value

INTEGERS = {
    f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits if sign else bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
TICKS = [-(10**15) - 1, 0, None, 1_700_000_000_123_456_789 // 1000, 1]


def _typed(values: list[Any], dtype: str) -> pa.Array:
    return pa.array(values, Value(dtype).pa_type)


def is_known(dtype: str) -> bool:
    """Whether this release of datasets has a type."""
    try:
        Value(dtype)
    except ValueError:
        return False
    return True


def _cases() -> dict[str, tuple[Any, Any]]:
    cases: dict[str, tuple[Any, Any]] = {
        "null": (Value("null"), [None, None, None]),
        "bool": (Value("bool"), [True, None, False]),
        "float16": (Value("float16"), pa.array(np.array([1.5, 0, -2], dtype=np.float16))),
        "float32": (Value("float32"), [0.1, None, float("nan"), float("-inf"), -0.0]),
        "float64": (Value("float64"), [0.1, None, float("nan"), float("inf"), -0.0, 5e-324]),
        "string": (Value("string"), ["", None, "täxt \0 🎬", "x" * 500]),
        "large_string": (Value("large_string"), ["", None, "ab"]),
        "string_view": (Value("string_view"), ["", None, "short", "longer than twelve bytes"]),
        "binary": (Value("binary"), [b"", None, b"\0\xff\0", b"x" * 500]),
        "large_binary": (Value("large_binary"), [b"", None, b"\0\0"]),
        "binary_view": (Value("binary_view"), _typed([b"", None, b"\0", b"longer than twelve bytes"], "binary_view")),
        "decimal128": (
            Value("decimal128(10, 2)"),
            _typed([decimal.Decimal("12345678.90"), None, decimal.Decimal("-0.01")], "decimal128(10, 2)"),
        ),
        "decimal256": (
            Value("decimal256(50, 3)"),
            _typed([decimal.Decimal(10**40), None, decimal.Decimal("-0.001")], "decimal256(50, 3)"),
        ),
        "date32": (Value("date32"), [MOMENT.date(), None, datetime.date(1, 1, 1)]),
        "date64": (Value("date64"), [MOMENT.date(), None, datetime.date(1969, 12, 31)]),
        "class_label": (ClassLabel(names=["no", "yes"]), [0, -1, None, 1]),
        "list": (List(Value("int32")), [[1, None, 3], None, [], [7]]),
        "list_of_floats": (List(Value("float32")), [[0.5, float("nan")], None, []]),
        "list_of_bools": (List(Value("bool")), [[True, None], None, [], [False] * 9]),
        "list_of_strings": (List(Value("string")), [["a", None, ""], None, []]),
        "list_of_lists": (List(List(Value("int64"))), [[[1], None, []], None, [], [[2, None]]]),
        "large_list": (LargeList(Value("int64")), [[1, None], None, []]),
        "fixed_length": (List(Value("int16"), length=2), [[1, 2], None, [3, None]]),
        "fixed_length_of_lists": (List(List(Value("int8")), length=2), [[[1], None], None, [[], [2]]]),
        "sequence_of_struct": (
            Sequence({"a": Value("int64"), "b": Value("string")}),
            [{"a": [1, None], "b": ["x", None]}, {"a": [], "b": []}],
        ),
        "list_of_struct": (
            List({"a": Value("int64"), "b": List(Value("string"))}),
            [[{"a": 1, "b": ["x"]}, {"a": None, "b": None}], None, []],
        ),
        "nested_struct": (
            {"a": Value("int64"), "deep": {"b": Value("string"), "c": {"d": List(Value("float64"))}}},
            [
                {"a": 1, "deep": {"b": "x", "c": {"d": [0.5, None]}}},
                None,
                {"a": None, "deep": None},
                {"a": 2, "deep": {"b": None, "c": None}},
                {"a": 3, "deep": {"b": "", "c": {"d": None}}},
            ],
        ),
        "array2d": (datasets.Array2D((2, 3), "float32"), [[[0.5, 1, 2], [3, 4, 5]], None, [[0, 0, 0], [1, 1, 1]]]),
        "array2d_without_nulls": (datasets.Array2D((1, 2), "int8"), [[[1, 2]], [[-1, 0]]]),
        "array2d_of_any_height": (datasets.Array2D((None, 2), "int32"), [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]),
        "array3d": (datasets.Array3D((1, 2, 2), "uint8"), [[[[1, 2], [3, 4]]], None, [[[5, 6], [7, 255]]]]),
        "array4d": (datasets.Array4D((1, 1, 1, 2), "int64"), [[[[[2**60, 1]]]], None]),
        "array5d": (datasets.Array5D((1, 1, 1, 1, 1), "float64"), [[[[[[0.1]]]]], None]),
        "translation": (Translation(["de", "en"]), [{"de": "ja", "en": "yes"}, {"de": None, "en": "no"}, None]),
        "translation_variable_languages": (
            TranslationVariableLanguages(["de", "en", "fr"]),
            [{"de": "ja", "fr": ["oui", "si"]}, {"en": "no"}],
        ),
    }
    if is_known("fixed_size_binary[3]"):
        values = _typed([b"abc", None, b"\0\0\0"], "fixed_size_binary[3]")
        cases["fixed_size_binary"] = (Value("fixed_size_binary[3]"), values)
    for dtype, (lowest, highest) in INTEGERS.items():
        cases[dtype] = (Value(dtype), _typed([lowest, None, highest, 0], dtype))
    for unit in ("s", "ms", "us", "ns"):
        ticks = [tick if tick is None else tick // {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[unit] for tick in TICKS]
        for dtype in (f"timestamp[{unit}]", f"timestamp[{unit}, tz=Europe/Berlin]", f"timestamp[{unit}, tz=UTC]"):
            cases[dtype] = (Value(dtype), _typed(ticks, dtype))
        cases[f"duration[{unit}]"] = (Value(f"duration[{unit}]"), _typed([-1, None, 10**9], f"duration[{unit}]"))
        time_type = f"time{32 if unit in ('s', 'ms') else 64}[{unit}]"
        cases[time_type] = (Value(time_type), _typed([0, None, 86_399], time_type))
    if hasattr(datasets, "Json"):
        cases["json"] = (datasets.Json(), [{"a": [1, None, "x"]}, None, [1.5], "text", True])
        cases["list_of_json"] = (List(datasets.Json()), [[{"b": 0}, None], None, []])
    return cases


CASES = _cases()


def make(name: str) -> datasets.Dataset:
    """A dataset of a case's column `value` beside a running `number`."""
    feature, values = CASES[name]
    features = Features({"number": Value("int64"), "value": feature})
    if isinstance(values, pa.Array):
        table = pa.table({"number": pa.array(range(len(values)), pa.int64()), "value": values})
        dataset = datasets.Dataset(datasets.table.InMemoryTable(table)).cast(features)
    else:
        columns = {"number": list(range(len(values))), "value": values}
        dataset = datasets.Dataset.from_dict(columns, features=features)
    assert dataset.features == features
    return dataset


def same(one: Any, other: Any) -> bool:
    """Whether two values of rows are the same in type and content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    if hasattr(one, "tobytes") and hasattr(one, "mode"):
        return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())
    return bool(one == other)
