# sample_workers.py DIR WORKERS: a loader with that many threads. The end of each file names the place of its
# index, and the index that of a record. Files are taken in a random order, as by real loaders.
import concurrent.futures, os, random, struct, sys, zlib

directory, workers = sys.argv[1], int(sys.argv[2])
names = sorted(os.listdir(directory))
random.Random(11).shuffle(names)


def load(name):
    fd = os.open(os.path.join(directory, name), os.O_RDONLY)
    try:
        end = os.fstat(fd).st_size
        at, length = struct.unpack("<QQ", os.pread(fd, 16, end - 16))
        index = os.pread(fd, length, at)
        entry = zlib.crc32(index) % (length // 8) * 8
        (record,) = struct.unpack_from("<Q", index, entry)
        return zlib.crc32(os.pread(fd, 4096, record))
    finally:
        os.close(fd)


with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    print(len(names), sum(pool.map(load, names)))
