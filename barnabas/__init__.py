"""A Kafka broker cluster in Python. This module imports nothing: import the part that you need."""

__version__ = "0.1.0"  # setup.cfg reads it from here
