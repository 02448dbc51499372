"""Settings for the whole suite."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every machine and every run, and no verdict that hangs on how busy the machine is.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=50)
# For a hunt: `make test ARGS=--hypothesis-profile=hunt` tries new examples every time.
settings.register_profile("hunt", deadline=None, max_examples=2000)
settings.load_profile("quick")
