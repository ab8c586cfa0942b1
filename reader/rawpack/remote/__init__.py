"""Stores behind a URL: fetched into a cache on this machine, shard by shard as the order needs them.

url.py       which strings are URLs, the URLs of a store's files, and URLs without credentials
transfer.py  one file, fetched: in pieces, tried again, checked
cache.py     the folder of fetched files, shared by all processes of the machine, with a limit in bytes
fetch.py     what is fetched next, by threads of the process that asks for batches
origin.py    an open store behind a URL

Only `transfer.py` and `url.py` load fsspec, when a URL is opened. Workers never use the network: they get a batch
when its shards are in the cache (`batching/prefetch.py`).
"""
