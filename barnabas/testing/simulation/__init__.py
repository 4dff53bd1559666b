"""The simulator: the real code of a cluster in one thread and virtual time, all decided by a seed.

Its modules are imported in an interpreter of their own, after `machine.patches.install`. This one imports nothing.
"""
