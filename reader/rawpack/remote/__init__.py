"""Stores behind a URL: fetched into a cache on this machine, shard by shard as the order comes to them.

url.py       what is a URL, how files of a store are named below it, and what of it may be shown
transfer.py  one file, fetched: in pieces, tried again, checked
cache.py     the folder that fetched files lie in, shared by all processes of the machine, with a bound in bytes
fetcher.py   what is fetched next: threads of the process that asks for batches
supply.py    the coming batches of an epoch, handed on when their shards are there
origin.py    a store behind a URL, opened

Only `transfer.py` and `url.py` load fsspec, when a URL is opened. Workers never touch the network: a batch is given to
them when its shards lie in the cache.
"""
