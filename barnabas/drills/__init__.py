"""Drills: staged incidents for people who learn to operate Kafka (`barnabas drill`, docs/drills/).

    drill                   the class of a drill
    catalogue               all drills
    servers, load, groups   the drills about processes and disks, request threads, consumer groups
    scene                   the cluster of a drill: its state, and actions on it
    applications            programs that use the cluster during a drill

The process of `barnabas drill NAME` stages a drill. `barnabas drill check`, another process, decides only from the
cluster's pages whether it is repaired.
"""
