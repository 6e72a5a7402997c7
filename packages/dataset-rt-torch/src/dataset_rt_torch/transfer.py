"""How worker processes send batches: small tensors through the pipe, large ones through shared memory.

torch moves every tensor through shared memory, for which the receiver opens a connection to the worker. That takes
longer than sending what is small, and a batch holds several small tensors: its columns and the numbers of its samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from dataset_rt_torch.collate import collate_samples

__all__ = ["collate_and_send"]

MOST_BYTES = 1 << 20
"""What is larger goes through shared memory, where it is copied less often."""

_DTYPES = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    }
)
"""Those that NumPy has as well."""


def collate_and_send(batch: Any) -> Any:
    """Collate like `collate_samples`; in a worker the result is for nothing but to be sent to the parent.

    Args:
        batch: As in `collate_samples`.

    Returns:
        The batch; in a worker with stand-ins for small tensors, which arrive as tensors.

    Raises:
        ConfigError: As in `collate_samples`.
    """
    collated = collate_samples(batch)
    return collated if get_worker_info() is None else _sent(collated)


class _ByValue:
    """A tensor that is sent as its bytes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._tensor.numpy(),)


def _received(array: npt.NDArray[Any]) -> torch.Tensor:
    # Some versions of pickle give memory that nobody may write to.
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _sent(value: Any) -> Any:
    if type(value) is torch.Tensor:
        return _ByValue(value) if _is_small(value) else value
    if type(value) is dict:
        return {key: _sent(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_sent, value))
    return value


def _is_small(tensor: torch.Tensor) -> bool:
    return (
        tensor.nbytes <= MOST_BYTES
        and tensor.dtype in _DTYPES
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
        # The bits that say so are lost.
        and not (tensor.is_conj() or tensor.is_neg())
    )
