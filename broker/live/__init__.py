"""The present state of a broker as JSON, for the live page, `barnabas top` and `barnabas explain`.

`common/pages/live_shape.py` defines the shape; every module here makes a part of it. All code runs on the thread of the
page's visitor and only reads. It takes the same locks as a scrape of the metrics: a queue's while its list is copied,
and a purgatory shard's while a limited number of entries is read. It takes no lock of a partition, a log or a
coordinator.
"""
