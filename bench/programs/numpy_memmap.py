"""numpy_memmap.py FILE TOUCHES: adds up so many numbers of a file at random places, by numpy.memmap; prints the sum."""
import sys

import numpy

numbers = numpy.memmap(sys.argv[1], dtype="uint64", mode="r")
places = numpy.random.default_rng(5).integers(0, len(numbers), int(sys.argv[2]))
print(sum(int(numbers[place]) for place in places))
