"""KRaft: elects a leader among controllers and replicates the metadata log. A pure core; nothing serves it yet."""
