"""The data pipeline that runs on Barnabas: flights in, delay figures out, and an audit of both.

`python -m pipeline.run` does all of it; `ingest`, `delays` and `audit` are the Spark jobs by themselves.
Run from the checkout or the image: the pipeline is not part of the installed package.
"""
