"""What sources are and yield."""

import dataclasses
import pickle
from collections.abc import Iterator

import pytest

import dataset_rt as drt


class Plain:
    name = "plain"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"payload", {"label": 1})


class Computed:
    @property
    def name(self) -> str:
        return "computed"

    def __iter__(self) -> Iterator[drt.CacheInput | drt.SkippedInput]:
        yield drt.SkippedInput("broken")


class Nameless:
    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"", {})


class NotIterable:
    name = "single"


def test_an_input_unpacks_and_has_names():
    data, metadata = drt.CacheInput(data=b"payload", metadata={"label": 1})
    assert (data, metadata) == (b"payload", {"label": 1})
    assert drt.CacheInput(b"a", {}).data == b"a"
    assert drt.CacheInput._fields == ("data", "metadata")


def test_an_input_needs_both_parts():
    with pytest.raises(TypeError):
        drt.CacheInput(b"payload")


def test_a_skipped_input_holds_its_reason_and_never_changes():
    skipped = drt.SkippedInput("cannot decode")
    assert skipped.reason == "cannot decode"
    assert skipped == drt.SkippedInput(reason="cannot decode")
    with pytest.raises(dataclasses.FrozenInstanceError):
        skipped.reason = "other"
    assert pickle.loads(pickle.dumps(skipped)) == skipped


@pytest.mark.parametrize("source", [Plain(), Computed()])
def test_a_class_with_a_name_and_an_iterator_is_a_source(source):
    assert isinstance(source, drt.CacheSource)


@pytest.mark.parametrize("other", [Nameless(), NotIterable(), [], object()])
def test_a_class_without_one_of_them_is_none(other):
    assert not isinstance(other, drt.CacheSource)
