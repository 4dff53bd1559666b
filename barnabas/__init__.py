"""A Kafka broker cluster in Python. Nothing is imported here: who needs a part names it."""

__version__ = "0.1.0"  # the one place: setup.cfg takes it from here
