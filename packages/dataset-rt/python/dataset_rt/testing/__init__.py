"""Show that a training loop receives exactly the samples that the stream promises, in exactly that order.

- `OrderRecorder` hashes what a real loop received; `SampleStream.order_digest` says what that must be.
- `replay` drives a dataset through a framework's loader and digests order and payloads as they arrive.
- `Driver` is what an adapter implements so that `replay`, `dataset-rt digest` and the `CHECKS` can drive it; it
  registers under the entry-point group `dataset_rt.adapters`, and `find_driver` finds it by name.
"""

from dataset_rt.testing.checks import CHECKS, Check
from dataset_rt.testing.driver import Delivery, Driver, Loader, driver_names, find_driver
from dataset_rt.testing.recorder import OrderRecorder
from dataset_rt.testing.replay import DeliveryDigest, replay

__all__ = [
    "CHECKS",
    "Check",
    "Delivery",
    "DeliveryDigest",
    "Driver",
    "Loader",
    "OrderRecorder",
    "driver_names",
    "find_driver",
    "replay",
]
