"""KRaft: a pure core that elects a leader among controllers and replicates the metadata log; `client/` runs it."""
