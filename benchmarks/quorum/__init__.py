"""What a quorum of controllers costs and how fast it elects, beside Apache Kafka's: `python -m benchmarks.quorum`."""
