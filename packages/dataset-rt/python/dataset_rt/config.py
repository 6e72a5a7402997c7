"""How caches are written and read: frozen models that check themselves.

The rules here serve the message; Rust checks every value again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import Self

from dataset_rt.errors import ConfigError

__all__ = ["ReaderConfig", "ShardCompression", "WriterConfig"]

_MEBIBYTE = 1024 * 1024
# Sizes and counts are signed 64-bit integers wherever they are stored.
_LARGEST = 2**63 - 1
# What zstd itself takes; 0 is its default level, below it fast ones.
_ZSTD_LOWEST, _ZSTD_HIGHEST = -131_072, 22
# The longest part of a refused value that a message repeats.
_SHOWN_CHARACTERS = 80


def _rule(text: str) -> PydanticCustomError:
    # A literal template with one context entry, because braces in `text` are no fields.
    return PydanticCustomError("dataset_rt_rule", "{rule}", {"rule": text})


def _integer(lowest: int, highest: int) -> Callable[[object], int]:
    """A check for an integer in `[lowest, highest]`, Python's or NumPy's, never a bool."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise _rule("must be an integer")
        number = int(value)
        if lowest <= number <= highest:
            return number
        if number < lowest and highest == _LARGEST:
            raise _rule(f"must be at least {lowest}")
        if lowest == 1:
            raise _rule(f"must be at most {highest}")
        raise _rule(f"must be in [{lowest}, {highest + 1})")

    return check


def _boolean(value: object) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _rule("must be True or False")


def _zstd_level(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise _rule("must be an integer or None")
    level = int(value)
    if not _ZSTD_LOWEST <= level <= _ZSTD_HIGHEST:
        raise _rule(f"must be in [{_ZSTD_LOWEST}, {_ZSTD_HIGHEST}]")
    return level


def _one_of(*choices: str) -> Callable[[object], str]:
    *first, last = [repr(choice) for choice in choices]
    listed = f"{', '.join(first)} or {last}"

    def check(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return str(value)
        raise _rule(f"must be {listed}")

    return check


def _compression(value: object) -> object:
    if isinstance(value, (ShardCompression, Mapping)):
        return value
    raise _rule('must be a ShardCompression, as in ShardCompression(algo="zstd")')


_Count: TypeAlias = Annotated[int, BeforeValidator(_integer(1, _LARGEST))]
_Seed: TypeAlias = Annotated[int, BeforeValidator(_integer(0, 2**64 - 1))]
_Flag: TypeAlias = Annotated[bool, BeforeValidator(_boolean)]


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001
        # The value is refused anyway; its broken repr must not hide the rule.
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


class _Config(BaseModel):
    """A frozen model whose refusals are `ConfigError`s."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, revalidate_instances="never")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise self._refusal(error) from None

    @classmethod
    def _refusal(cls, error: ValidationError) -> ConfigError:
        """Say for each refused field its rule and the value."""
        return ConfigError("; ".join(cls._sentence(detail) for detail in error.errors()))

    @classmethod
    def _sentence(cls, detail: ErrorDetails) -> str:
        field = ".".join(str(part) for part in detail["loc"])
        kind, value = detail["type"], _shown(detail["input"])
        refused = detail.get("ctx", {}).get("error")
        if isinstance(refused, ConfigError):
            # From a nested configuration, or from this one's own constructor.
            return f"{field}: {refused}" if field else str(refused)
        if kind == "dataset_rt_rule":
            return f"{field or cls.__name__} {detail['msg']}, got {value}"
        if kind == "dataset_rt_together":
            return detail["msg"]
        if kind == "extra_forbidden":
            known = ", ".join(cls.model_fields)
            return f"{field} is no field of {cls.__name__}, got {value}; its fields are {known}"
        if kind == "frozen_instance":
            return (
                f"{field} cannot be set to {value}: a {cls.__name__} never changes; "
                "make a new one, for example with model_copy(update=...)"
            )
        return f"{field or cls.__name__}: {detail['msg']}, got {value}"

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse.

        Raises:
            ConfigError: Always; configurations never change.
        """
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise self._refusal(error) from None

    def __delattr__(self, name: str) -> None:
        """Refuse.

        Raises:
            ConfigError: Always; configurations never change.
        """
        try:
            super().__delattr__(name)
        except ValidationError as error:
            raise self._refusal(error) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Make one from a mapping of its fields.

        Raises:
            ConfigError: If a field is unknown or its value breaks its rule.
        """
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise cls._refusal(error) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Make one from a JSON object of its fields.

        Raises:
            ConfigError: If it is no JSON object, a field is unknown or its value
                breaks its rule.
        """
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise cls._refusal(error) from None

    @classmethod
    def model_validate_strings(cls, obj: Any, **options: Any) -> Self:
        """Make one from a mapping whose values are text (numbers in text are refused).

        Raises:
            ConfigError: If a field is unknown or its value breaks its rule.
        """
        try:
            return super().model_validate_strings(obj, **options)
        except ValidationError as error:
            raise cls._refusal(error) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """Make one with some fields replaced; they are checked as in the constructor.

        Args:
            update: Field names and their new values.
            deep: Without effect, because nothing in here can change.

        Raises:
            ConfigError: If a field is unknown or its value breaks its rule.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **(update or {})})


class ShardCompression(_Config):
    """How a writer compresses each payload.

    It changes the files, never the cache's identity or order. A payload that does
    not shrink is stored as it is.

    Attributes:
        algo: `"none"`, `"lz4"` (fast) or `"zstd"` (smaller).
        level: For zstd only, in [-131072, 22]: slower and smaller as it rises; those
            below 0 are the fast ones. None, like 0, is zstd's own default.

    Raises:
        ConfigError: If a field is unknown, outside its range, or a level is given
            to an algorithm that has none.
    """

    algo: Annotated[Literal["none", "lz4", "zstd"], BeforeValidator(_one_of("none", "lz4", "zstd"))] = "none"
    level: Annotated[int | None, BeforeValidator(_zstd_level)] = None

    @model_validator(mode="after")
    def _level_is_for_zstd(self) -> Self:
        if self.level is not None and self.algo != "zstd":
            raise PydanticCustomError(
                "dataset_rt_together",
                "level must be None with algo '{algo}', got {level}; only zstd has levels",
                {"algo": self.algo, "level": self.level},
            )
        return self


class WriterConfig(_Config):
    """How caches are written.

    Attributes:
        prefetch_size: How many samples may wait between the source and the disk,
            at least 1.
        prefetch_bytes: How many payload bytes may wait there, at least 1. The
            bound that binds first counts; one sample always goes.
        max_shard_bytes: Size in bytes at which a new shard is begun, at least 1. A
            payload is never split, so a larger one has a shard of its own.
        shard_compression: How each payload is compressed.
        show_progress: Whether to show progress where somebody sees it.
        validate_cache: Whether caches that are written or reused are read again
            whole and every checksum compared.
        on_error: `"fail"`: a sample that is refused fails its source. `"skip"`: it
            is left out and counted. An exception out of the source's own iterator
            always fails the source.

    Raises:
        ConfigError: If a field is unknown or outside its range.
    """

    prefetch_size: _Count = 64
    prefetch_bytes: _Count = 64 * _MEBIBYTE
    max_shard_bytes: _Count = 256 * _MEBIBYTE
    shard_compression: Annotated[ShardCompression, BeforeValidator(_compression)] = ShardCompression()
    show_progress: _Flag = True
    validate_cache: _Flag = False
    on_error: Annotated[Literal["fail", "skip"], BeforeValidator(_one_of("fail", "skip"))] = "fail"


class ReaderConfig(_Config):
    """How caches are read, and in which order.

    Attributes:
        seed: Integer in [0, 2**64). The same seed gives the same order everywhere.
        shuffle: Whether samples are drawn at random; otherwise they come in the
            table's order, over and over.
        replacement: With `shuffle`: whether each draw is independent and follows
            the weights, or each pass over the table is a permutation.
        prefetch_size: How many samples may be read ahead, at least 1.
        prefetch_bytes: How many payload bytes may be read ahead, at least 1. The
            bound that binds first counts; one sample always goes.
        validate_cache: Whether every file is read whole and its checksum compared
            when a cache is opened, and files that are none of the cache's refused.
        verify_reads: Whether each payload's checksum is compared when it is read.
        io: How files are read. `"mapped"`: by copies out of memory maps, several times
            as fast for small samples; a file that is cut off or a disk that fails is an
            error all the same. `"positioned"`: by a system call for each read.
            `"auto"`: mapped on local file systems of Linux, but positioned where shuffled
            records come from a disk, and on other file systems. What cannot be mapped is
            always read by position.

    Raises:
        ConfigError: If a field is unknown or outside its range.
    """

    seed: _Seed = 0
    shuffle: _Flag = True
    replacement: _Flag = True
    prefetch_size: _Count = 256
    prefetch_bytes: _Count = 64 * _MEBIBYTE
    validate_cache: _Flag = False
    verify_reads: _Flag = True
    io: Annotated[
        Literal["auto", "mapped", "positioned"],
        BeforeValidator(_one_of("auto", "mapped", "positioned")),
    ] = "auto"
