"""What many partitions, connections and groups cost, beside Apache Kafka: `python -m benchmarks.wide`."""
