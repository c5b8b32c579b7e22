"""lmdb_gets.py STORE KEYS: gets what an LMDB database has for each of a list of keys; prints a sum over it."""
import sys
import zlib

import lmdb

with open(sys.argv[2], "rb") as keys, lmdb.open(sys.argv[1], readonly=True, lock=False) as store:
    with store.begin() as get:
        print(sum(zlib.crc32(get.get(key.strip())) for key in keys))
