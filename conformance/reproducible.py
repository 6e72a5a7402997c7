"""What all property tests here run under."""

from hypothesis import HealthCheck, settings

# The same cases every time, so that a gate that fails fails again; and no clock decides, as machines may be busy.
REPRODUCIBLE = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
