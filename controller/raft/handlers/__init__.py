"""The handlers of the requests and responses of the raft protocol."""
