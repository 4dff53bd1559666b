"""Load on a system: Apache Kafka's tools, Java clients (`java/`), and load generators in C."""
