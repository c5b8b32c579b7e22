"""Files that programs map, made the same each time.

make_mapped_files.py records STORE KEYS COUNT GETS: an LMDB database of COUNT records, and a list of GETS of their keys.
make_mapped_files.py tensors FILE COUNT ROWS: a safetensors file of COUNT tensors with ROWS rows of 1,024 numbers.
"""
import itertools
import random
import sys

import numpy

# Records of one transaction.
EACH = 200_000


def records(path, numbers, rng, map_size, append=False):
    """A database with a record of 600 bytes for each of these numbers, put in their order."""
    import lmdb

    numbers = iter(numbers)
    with lmdb.open(path, map_size=map_size, sync=False) as store:
        while part := list(itertools.islice(numbers, EACH)):
            with store.begin(write=True) as put:
                for n in part:
                    put.put(b"%012d" % n, rng.bytes(600), append=append)


def tensors(path, count, rows, rng):
    """A file of tensors that are called l0, l1 and so on."""
    from safetensors.numpy import save_file

    save_file({f"l{n}": rng.random((rows, 1024), dtype="float32") for n in range(count)}, path)


def main(kind, path, *rest):
    rng = numpy.random.default_rng(1)
    if kind == "records":
        keys, count, gets = rest[0], int(rest[1]), int(rest[2])
        records(path, range(count), rng, 4 << 30, append=True)
        with open(keys, "w") as file:
            file.writelines("%012d\n" % n for n in random.Random(3).sample(range(count), gets))
    else:
        tensors(path, *map(int, rest), rng)


if __name__ == "__main__":
    main(*sys.argv[1:])
