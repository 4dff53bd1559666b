"""Parts of the clocks (`barnabas/common/clock.py`)."""
