"""The results of writing and opening: matching, unwrapping and printing."""

import copy
import dataclasses
import pickle
from pathlib import Path

import pytest

import dataset_rt as drt

SUCCESS = drt.CacheWriteSuccess("digits", Path("cache/digits"), samples=3, skipped=1, first_errors=("sample 2: bad",))
FAILURE = drt.CacheWriteError(
    "letters", "source 'letters' is empty", error=drt.SourceError("empty", source_name="letters")
)
# Only handed through here, so any object stands for a dataset.
DATASET = ("a dataset",)


def test_a_written_cache_matches_by_position_and_by_keyword():
    match SUCCESS:
        case drt.CacheWriteSuccess(source_name, path):
            assert (source_name, path) == ("digits", Path("cache/digits"))
        case _:
            pytest.fail("no match by position")
    match SUCCESS:
        case drt.CacheWriteSuccess(path=path, samples=3, skipped=1, first_errors=(first,), reused=False):
            assert (path, first) == (Path("cache/digits"), "sample 2: bad")
        case _:
            pytest.fail("no match by keyword")


def test_a_failed_write_matches_by_position_and_by_keyword():
    match FAILURE:
        case drt.CacheWriteError(source_name, message):
            assert (source_name, message) == ("letters", "source 'letters' is empty")
        case _:
            pytest.fail("no match by position")
    match FAILURE:
        case drt.CacheWriteError(message=message, error=drt.SourceError(source_name=name)):
            assert (message, name) == ("source 'letters' is empty", "letters")
        case _:
            pytest.fail("no match by keyword")


def test_the_further_attributes_take_no_positions():
    assert drt.CacheWriteSuccess.__match_args__ == ("source_name", "path")
    assert drt.CacheWriteError.__match_args__ == ("source_name", "message")
    assert drt.CacheSourcesDatasetSuccess.__match_args__ == ("dataset", "results")
    assert drt.CacheSourcesDatasetError.__match_args__ == ("results", "message")
    with pytest.raises(TypeError):
        drt.CacheWriteSuccess("digits", Path("cache/digits"), 3)


def test_both_write_results_have_the_same_further_attributes_and_defaults():
    for made in (drt.CacheWriteSuccess("a", Path("a")), drt.CacheWriteError("a", "failed")):
        assert (made.samples, made.skipped, made.first_errors, made.reused) == (0, 0, (), False)


def test_a_failed_write_always_holds_an_exception():
    made = drt.CacheWriteError("letters", "no samples")
    assert type(made.error) is drt.DatasetRTError
    assert str(made.error) == "no samples"
    assert FAILURE.error.source_name == "letters"


def test_a_success_unwraps_to_its_dataset_and_matches_both_ways():
    made = drt.CacheSourcesDatasetSuccess(DATASET, [SUCCESS])
    assert made.unwrap() is DATASET
    match made:
        case drt.CacheSourcesDatasetSuccess(dataset, results):
            assert (dataset, results) == (DATASET, [SUCCESS])
        case _:
            pytest.fail("no match by position")
    match made:
        case drt.CacheSourcesDatasetSuccess(dataset=dataset, results=results):
            assert (dataset, results) == (DATASET, [SUCCESS])
        case _:
            pytest.fail("no match by keyword")


def test_an_error_unwraps_to_the_first_failure_and_matches_both_ways():
    later = drt.CacheWriteError("later", "another", error=drt.ConfigError("another"))
    made = drt.CacheSourcesDatasetError([SUCCESS, FAILURE, later], "1 of 2 sources failed")
    with pytest.raises(drt.SourceError) as raised:
        made.unwrap()
    assert raised.value is FAILURE.error
    match made:
        case drt.CacheSourcesDatasetError(results, message):
            assert (len(results), message) == (3, "1 of 2 sources failed")
        case _:
            pytest.fail("no match by position")
    match made:
        case drt.CacheSourcesDatasetError(message=message, results=[_, drt.CacheWriteError(source_name=name), *_]):
            assert (name, message) == ("letters", "1 of 2 sources failed")
        case _:
            pytest.fail("no match by keyword")


def test_an_error_without_a_failed_source_unwraps_to_its_own_exception():
    given = drt.MetadataError("columns differ")
    with pytest.raises(drt.MetadataError) as raised:
        drt.CacheSourcesDatasetError([SUCCESS], "columns differ", error=given).unwrap()
    assert raised.value is given
    with pytest.raises(drt.DatasetRTError, match=r"^columns differ$"):
        drt.CacheSourcesDatasetError([SUCCESS], "columns differ").unwrap()


@pytest.mark.parametrize(
    "made",
    [drt.CacheSourcesDatasetSuccess(DATASET, [SUCCESS]), drt.CacheSourcesDatasetError([FAILURE], "it is empty")],
    ids=lambda made: type(made).__name__,
)
def test_a_result_that_is_taken_for_its_dataset_says_where_that_is(made):
    with pytest.raises(AttributeError, match=r"no attribute 'stream'; the dataset is what its unwrap\(\) gives"):
        made.stream()
    assert not hasattr(made, "get_metadata")


def test_a_failure_given_to_an_exception_shows_its_message():
    made = drt.CacheSourcesDatasetError([FAILURE], "source 'letters' failed: it is empty")
    assert str(RuntimeError(made)) == "source 'letters' failed: it is empty"
    assert str(FAILURE) == "source 'letters' is empty"


def test_results_print_what_they_hold():
    text = repr([SUCCESS, FAILURE])
    for part in (
        "CacheWriteSuccess(source_name='digits'",
        "samples=3",
        "sample 2: bad",
        "CacheWriteError(source_name='letters'",
    ):
        assert part in text


@pytest.mark.parametrize(
    "made",
    [
        SUCCESS,
        FAILURE,
        drt.CacheSourcesDatasetSuccess(DATASET, [SUCCESS]),
        drt.CacheSourcesDatasetError([FAILURE], "failed"),
    ],
)
def test_results_never_change_and_compare_copy_and_pickle(made):
    field = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, field, "other")
    assert copy.copy(made) == made
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    if hasattr(made, "error"):
        assert (type(again.error), str(again.error)) == (type(made.error), str(made.error))


def test_results_with_other_values_differ():
    assert dataclasses.replace(SUCCESS, samples=4) != SUCCESS
    assert dataclasses.replace(SUCCESS, reused=True) != SUCCESS
    assert dataclasses.replace(FAILURE, message="other") != FAILURE
