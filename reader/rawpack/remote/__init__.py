"""Stores behind a URL: fetched into a cache on this machine, shard by shard as the order needs them.

url.py       recognizing URLs, the URLs of a store's files, and URLs without credentials
pieces.py    how much is requested at the same time, and what first
transfer.py  downloading one file: in pieces, with retries, checked
cache.py     the folder of fetched files, which all processes of the machine share, and its size limit
lease.py     what one reader needs of the cache, for the other processes to see
tickets.py   what one reader needs now and next, within this process
fetch.py     downloading in the background, most urgent files first
origin.py    an open store behind a URL

Only `transfer.py` and `url.py` load fsspec, when a URL is opened. Workers never use the network: they receive a batch
when its shards are in the cache (`ahead/prefetch.py`).
"""
