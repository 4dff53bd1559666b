"""Comparison of Barnabas with Apache Kafka, in one run with equal settings: `make bench`."""
