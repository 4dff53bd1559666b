"""What a replica does with each request and response of the raft protocol."""
