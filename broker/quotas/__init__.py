"""Client quotas: how much a user or a client id may produce, fetch, occupy threads and change topics."""
