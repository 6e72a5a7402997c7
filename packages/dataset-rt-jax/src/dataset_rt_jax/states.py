"""The stream's state in the form that Grain checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataset_rt import ConfigError
from dataset_rt.integers import integer

__all__ = ["from_grain", "to_grain"]


def to_grain(state: Mapping[str, Any], *, epoch: int) -> dict[str, Any]:
    """Put a state and the number of windows behind together.

    Grain wants one structure at every step, so a state outside any window, which names none, names an empty one.
    """
    window = state["window"] or [state["position"], state["position"]]
    return {"epoch": epoch, "stream": {**state, "window": window}}


def from_grain(state: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Take apart what `to_grain` put together.

    Returns:
        The stream's state, and the number of windows behind.

    Raises:
        ConfigError: If it is something else.
    """
    try:
        stream, epoch = dict(state["stream"]), integer(state["epoch"], "epoch")
        start, end = stream["window"]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"state must be what get_state of a StreamIterDataset's iterator gave, got {state!r}; the state of another "
            "adapter goes into the dataset by load_state_dict, before the iterator is made"
        ) from error
    return {**stream, "window": None if start == end else [start, end]}, epoch
