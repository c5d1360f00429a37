"""Settings of every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A timing is a benchmark's figure, never an assertion: examples take longer on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
