"""What many partitions cost, beside Apache Kafka: `python -m benchmarks.wide`."""
