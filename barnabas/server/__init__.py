"""`barnabas server FILE`: every role that a server.properties names, in one process."""
