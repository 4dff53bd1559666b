"""Barnabas and Apache Kafka side by side, in one run with equal settings: `make bench`."""
