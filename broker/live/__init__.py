"""What is in a broker at this moment, as JSON for the live page, `barnabas top` and `barnabas explain`.

The shape is in `barnabas/common/live_shape.py`; every module here makes a part of it. All of it runs on the thread of
the page and only looks: it takes the locks that a scrape of the metrics takes (a queue's, while its list is copied; a
shard's of a purgatory, while a bounded number of places is read) and none of a partition, a log or a coordinator.
"""
