"""Standing in the middle of a window: what is left of it, and taking one so that an interrupt loses none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dataset_rt as drt

__all__ = ["reserve", "rest_of"]


def rest_of(
    stream: drt.SampleStream,
    state: Mapping[str, Any],
    batch_size: int,
    *,
    drop_last: bool,
    world: tuple[int, int, str],
) -> drt.Window:
    """Make a window of what is left behind a state, dealt to a rank. It moves no position but its own.

    Raises:
        StateMismatchError: If the state is of another stream.
        ConfigError: If there is no such rank or batch size, or the window would end beyond the stream.
    """
    cursor = stream.cursor()
    cursor.load_state_dict(state)
    rank, world_size, remainder = world
    ticket = cursor.ticket(batch_size, drop_last=drop_last, rank=rank, world_size=world_size, remainder=remainder)
    return ticket.reserve()


def reserve(cursor: drt.CachedDataset | drt.StreamCursor, ticket: drt.WindowTicket) -> drt.Window:
    """Reserve a ticket's window, or leave the position as it was.

    A signal's handler may raise when the window is reserved and nobody holds it yet.

    Raises:
        ConfigError: If the window would exceed the end of the stream.
    """
    before = ticket.state_dict()
    try:
        return ticket.reserve()
    except BaseException:
        if cursor.position != before["position"]:
            cursor.load_state_dict(before)
        raise
