"""How a broker that answers as an older release carries out versions that Kafka 4.0 removed (`older_release`)."""
