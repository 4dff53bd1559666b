"""The data pipeline that runs on Barnabas: flights in, delay figures out, and an audit of both.

`python -m pipeline.run` runs all of it; `ingest`, `delays` and `audit` are its Spark jobs. Run it from the checkout or
the image, since it is not part of the installed package.
"""
