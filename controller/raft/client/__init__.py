"""The client: carries a replica of the quorum in a process, with its log on disk, its thread and its requests."""
