"""A machine that is simulated: scheduler, processes, threads, clocks, network and disk. It knows nothing of Kafka."""
