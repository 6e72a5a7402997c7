"""The driver by which `dataset_rt.testing` finds this adapter."""

from dataset_rt.testing.core_driver import CoreDriver

__all__ = ["HFDriver"]


class HFDriver(CoreDriver):
    """An imported dataset is read by the core's own iterators, and decoded after that: the order is theirs."""

    name = "hf"
