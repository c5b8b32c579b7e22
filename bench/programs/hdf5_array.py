# hdf5_array.py FILE A B C: an array of A x B x C random numbers (4 bytes each) as HDF5 stores it by default,
# contiguous; seeded.
import sys
import h5py, numpy

shape = tuple(map(int, sys.argv[2:5]))
random = numpy.random.default_rng(20030801)
with h5py.File(sys.argv[1], "w") as file:
    v = file.create_dataset("v", shape, "<f4")
    for n in range(shape[0]):
        v[n] = random.random(shape[1:], dtype="f4")
