"""Stores behind a URL: fetched into a cache on this machine, shard by shard as the order needs them.

url.py       recognizing URLs, the URLs of a store's files, and URLs without credentials
wire.py      the plain answer of a server over HTTP, straight into memory
answers.py   what a server may answer to fsspec's package for HTTP, bounded
transfer.py  reading behind a URL: by the plain transport or fsspec's package, with retries
attempts.py  what an error means, whether and when to retry, and when a server is too slow
reach.py     whether a host can be reached at all
download.py  downloading one file: in ranges by several threads, written in order, checked
cache.py     the folder of fetched files, which all processes of the machine share, and its size limit
executor.py  the threads that download, the most urgent file first
fetch.py     what readers need, and what of it is missing
origin.py    an open store behind a URL

Only `transfer.py` and `url.py` load fsspec, when a URL is opened, and its packages only if plain HTTP is not enough.
Workers never use the network: they receive a batch when its shards are in the cache (`ahead/prefetch.py`).
"""
