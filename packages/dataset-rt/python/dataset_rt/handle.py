"""What the classes have in common that wrap an object of the core's."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from typing_extensions import Self

from dataset_rt.errors import ConfigError

__all__ = ["Handle"]

Core = TypeVar("Core")


class Handle(Generic[Core]):
    """Wraps an object of the core's. The package makes it, and nobody else can."""

    _core: Core
    # Completes the sentence that refuses the constructor.
    _made_by: ClassVar[str]

    @classmethod
    def _over(cls, core: Core) -> Self:
        handle = cls.__new__(cls)
        handle._core = core
        return handle

    def __init__(self) -> None:
        raise ConfigError(f"a {type(self).__name__} is made by {self._made_by}")
