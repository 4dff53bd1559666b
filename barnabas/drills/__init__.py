"""Drills: incidents on purpose, for people who learn to operate Kafka. `barnabas drill`; docs/drills/.

    drill           what a drill is
    catalogue       all of them
    servers, load, groups       their incidents: of processes and disks, of request threads, of applications
    scene           the cluster of a drill: what it is like now, and what can be done to it
    applications    programs that use the cluster meanwhile

A drill is staged by the process that `barnabas drill NAME` is. Whether it is repaired is told from outside, by what the
cluster says of itself: `barnabas drill check` works it out in a process of its own.
"""
