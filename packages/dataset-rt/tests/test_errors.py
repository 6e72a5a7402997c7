"""The exceptions: what they are, what they carry, and that they travel."""

import copy
import errno
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import dataset_rt as drt

MADE = {
    "DatasetRTError": lambda: drt.DatasetRTError("rule"),
    "ConfigError": lambda: drt.ConfigError("rule"),
    "MetadataError": lambda: drt.MetadataError("rule"),
    "CacheNotFoundError": lambda: drt.CacheNotFoundError("rule", path="/a/b"),
    "CacheExistsError": lambda: drt.CacheExistsError("rule", path=Path("/a/b")),
    "CacheIOError": lambda: drt.CacheIOError(
        "rule", path="/a/b", operation="cannot write", bytes=4096, errno=errno.ENOSPC
    ),
    "CacheCorruptError": lambda: drt.CacheCorruptError("rule", file="/a/b", sample=7, expected="one", found="two"),
    "CacheVersionError": lambda: drt.CacheVersionError("rule", file="/a/b", expected=1, found=2**63),
    "SourceError": lambda: drt.SourceError("rule", source_name="digits", sample=3, field="label"),
    "StateMismatchError": lambda: drt.StateMismatchError("rule", field="seed", expected="1", found="2"),
}
SYSTEM = ("errno", "strerror", "filename")
ALSO = {
    "ConfigError": ValueError,
    "MetadataError": ValueError,
    "StateMismatchError": ValueError,
    "CacheNotFoundError": FileNotFoundError,
    "CacheExistsError": FileExistsError,
    "CacheIOError": OSError,
}


class OwnNotFoundError(drt.CacheNotFoundError):
    """A user's subclass whose constructor has another signature."""

    def __init__(self, advice: str, number: int) -> None:
        super().__init__(f"no cache: {advice}", path="/own")
        self.number = number


class OwnError(drt.DatasetRTError):
    """A user's subclass with two positional arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.args = (first, second)


def contents(error: BaseException) -> dict[str, object]:
    found: dict[str, object] = {"type": type(error), "text": str(error), "args": error.args, **vars(error)}
    if isinstance(error, OSError):
        found.update({name: getattr(error, name) for name in SYSTEM})
    return found


def test_every_public_exception_is_in_this_table():
    public = {name for name in vars(drt) if isinstance(getattr(drt, name), type) and name.endswith("Error")}
    exceptions = {name for name in public if issubclass(getattr(drt, name), BaseException)}
    assert exceptions == set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_every_exception_derives_from_the_base_and_lives_in_an_importable_module(name):
    kind = getattr(drt, name)
    assert issubclass(kind, drt.DatasetRTError)
    assert getattr(sys.modules[kind.__module__], kind.__qualname__) is kind


@pytest.mark.parametrize(("name", "other"), ALSO.items())
def test_an_exception_is_also_the_builtin_one_that_callers_catch(name, other):
    with pytest.raises(other):
        raise MADE[name]()


@pytest.mark.parametrize("name", MADE)
def test_text_is_the_message_alone(name):
    assert str(MADE[name]()) == "rule"
    assert "rule" in repr(MADE[name]())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", MADE)
def test_pickling_keeps_type_message_and_attributes(name, protocol):
    error = MADE[name]()
    assert contents(pickle.loads(pickle.dumps(error, protocol))) == contents(error)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", MADE)
def test_copying_keeps_type_message_and_attributes(name, duplicate):
    error = MADE[name]()
    assert contents(duplicate(error)) == contents(error)


@pytest.mark.parametrize("name", MADE)
def test_notes_travel_and_a_copy_has_its_own(name):
    error = MADE[name]()
    error.__notes__ = ["in worker 3"]
    again = pickle.loads(pickle.dumps(error))
    assert again.__notes__ == ["in worker 3"]
    duplicate = copy.copy(error)
    duplicate.__notes__.append("only here")
    assert error.__notes__ == ["in worker 3"]


def test_a_cause_that_cannot_be_pickled_does_not_keep_its_error_from_travelling():
    error = drt.SourceError("rule", source_name="digits")
    error.__cause__ = RuntimeError(lambda: None)
    again = pickle.loads(pickle.dumps(error))
    assert contents(again) == contents(error)
    assert again.__cause__ is None


class CyclicError(Exception):
    """A cause that leads back to its error."""


class OnlyHereError(Exception):
    """A cause that no process can make again: its constructor takes what its arguments do not hold."""

    def __init__(self, one, two):
        super().__init__("only here")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_cause_travels_with_its_error_and_with_its_own_cause(protocol):
    error = drt.SourceError("rule", source_name="digits", sample=3)
    error.__cause__ = drt.ConfigError("inner")
    error.__cause__.__cause__ = ValueError("the decoder died", 5)
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert contents(again) == contents(error)
        assert contents(again.__cause__) == contents(error.__cause__)
        assert repr(again.__cause__.__cause__) == "ValueError('the decoder died', 5)"
        assert again.__suppress_context__


def test_a_cause_that_cannot_be_made_again_does_not_keep_its_error_from_arriving():
    error = drt.SourceError("rule", source_name="digits")
    error.__cause__ = OnlyHereError(1, 2)
    again = pickle.loads(pickle.dumps(error))
    assert (contents(again), again.__cause__) == (contents(error), None)


def test_an_error_that_is_its_own_causes_cause_travels():
    error = drt.SourceError("rule", source_name="digits")
    error.__cause__ = CyclicError("round")
    error.__cause__.__cause__ = error
    assert contents(pickle.loads(pickle.dumps(error))) == contents(error)
    other = drt.ConfigError("other")
    error.__cause__, other.__cause__ = other, error
    assert contents(pickle.loads(pickle.dumps(error))) == contents(error)


@pytest.mark.parametrize("error", [OwnNotFoundError("look elsewhere", 5), OwnError("one", "two")])
def test_subclasses_with_other_constructors_travel(error):
    again = pickle.loads(pickle.dumps(error))
    assert contents(again) == contents(error)
    assert contents(copy.copy(error)) == contents(error)


def test_an_exception_raised_in_another_process_arrives_as_it_was():
    program = (
        "import pickle, sys, dataset_rt as drt\n"
        "error = drt.CacheCorruptError('m', file='/f', sample=1, expected='a', found='b')\n"
        "sys.stdout.buffer.write(pickle.dumps(error))\n"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    again = pickle.loads(output)
    assert type(again) is drt.CacheCorruptError
    assert (again.file, again.sample, again.expected, again.found) == (Path("/f"), 1, "a", "b")


def test_an_error_of_the_system_names_path_operation_bytes_and_number():
    error = MADE["CacheIOError"]()
    assert (error.path, error.operation, error.bytes) == (Path("/a/b"), "cannot write", 4096)
    assert (error.errno, error.filename) == (errno.ENOSPC, "/a/b")
    assert type(error) is drt.CacheIOError


def test_an_error_of_the_system_may_lack_number_and_bytes():
    error = drt.CacheIOError("rule", path="/a", operation="cannot lock", bytes=None, errno=None)
    assert (error.bytes, error.errno) == (None, None)
    assert contents(pickle.loads(pickle.dumps(error))) == contents(error)


def test_missing_and_existing_caches_carry_path_and_number():
    missing, existing = MADE["CacheNotFoundError"](), MADE["CacheExistsError"]()
    assert (missing.path, missing.filename, missing.errno) == (Path("/a/b"), "/a/b", errno.ENOENT)
    assert (existing.path, existing.filename, existing.errno) == (Path("/a/b"), "/a/b", errno.EEXIST)


def test_attributes_are_keyword_only():
    with pytest.raises(TypeError):
        drt.SourceError("rule", "digits")
    with pytest.raises(TypeError):
        drt.CacheCorruptError("rule", "/file", 1, "a", "b")


# --- Raised for real


class TornError(Exception):
    """What a source's own code raises."""


def raised(call):
    with pytest.raises(drt.DatasetRTError) as caught:
        call()
    return caught.value


@pytest.fixture
def provoke(cache_of, write, source_of, open_caches, runtime, tmp_path):
    """Raise an error by what a user would do; give it and what its attributes must be."""
    path = cache_of("digits", [{"label": number} for number in range(5)])

    def config():
        return raised(lambda: runtime.cached_dataset([], reader_config=drt.ReaderConfig())), {}

    def metadata():
        dataset = open_caches(path)
        return raised(lambda: dataset.update_metadata(dataset.get_metadata().drop("weight"))), {}

    def missing():
        return raised(lambda: open_caches(tmp_path / "nothing")), {"path": tmp_path / "nothing"}

    def existing():
        return write(source_of("digits", [{"label": 1}])).error, {"path": path}

    def system():
        (tmp_path / "file").write_bytes(b"")
        error = write(source_of("digits", [{"label": 1}]), tmp_path / "file" / "below").error
        return error, {"path": tmp_path / "file" / "below", "operation": "cannot create the folder", "bytes": None}

    def corrupt():
        shard = path / "shards" / "000000.bin"
        content = bytearray(shard.read_bytes())
        content[content.index(b"payload 3")] ^= 1
        shard.write_bytes(content)
        return raised(lambda: list(open_caches(path))), {"file": shard, "sample": 3}

    def version():
        manifest = path / "manifest.json"
        text = manifest.read_text()
        assert text.count('"format_version":1') == 1
        manifest.write_text(text.replace('"format_version":1', '"format_version":2'))
        return raised(lambda: open_caches(path)), {"file": manifest, "expected": 1, "found": 2}

    def source():
        items = [drt.CacheInput(b"", {"x": 1}), TornError("no page 7", 7)]
        return write(source_of("torn", items)).error, {"source_name": "torn", "sample": 1, "field": None}

    def sample():
        error = write(source_of("mixed", [{"x": 1}, {"x": "one"}])).error
        return error, {"source_name": "mixed", "sample": 1, "field": "x"}

    def state():
        saved = open_caches(path, seed=1, shuffle=True).state_dict()
        error = raised(lambda: open_caches(path, seed=2, shuffle=True).load_state_dict(saved))
        return error, {"field": "seed", "expected": "2", "found": "1"}

    return {
        "ConfigError": config,
        "MetadataError": metadata,
        "CacheNotFoundError": missing,
        "CacheExistsError": existing,
        "CacheIOError": system,
        "CacheCorruptError": corrupt,
        "CacheVersionError": version,
        "SourceError": source,
        "SourceError of a sample": sample,
        "StateMismatchError": state,
    }


PROVOKED = [*sorted(set(MADE) - {"DatasetRTError"}), "SourceError of a sample"]


@pytest.mark.parametrize("name", PROVOKED)
def test_an_error_that_is_raised_names_what_it_is_about_and_travels_whole(provoke, name):
    error, attributes = provoke[name]()
    assert type(error) is getattr(drt, name.partition(" ")[0])
    for attribute, value in attributes.items():
        assert getattr(error, attribute) == value
        # The message says all that the attributes say.
        if value is not None:
            assert str(value) in str(error), (attribute, str(error))
    again = pickle.loads(pickle.dumps(error))
    assert contents(again) == contents(error)
    assert (repr(again.__cause__), type(again.__cause__)) == (repr(error.__cause__), type(error.__cause__))
    if name == "SourceError":
        assert repr(again.__cause__) == "TornError('no page 7', 7)"
        assert "no page 7" in str(again)
