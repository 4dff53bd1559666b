"""What carries a replica of the quorum in a process: its log on disk, its thread, its requests."""
