"""jpeg_images.py make COUNT: as many JPEG files of noise on a gradient, by Pillow, from a seeded sequence.
jpeg_images.py load WORKERS: as many threads decode them and scale them down, as a loader of samples does; the sum of each."""
import concurrent.futures
import os
import random
import sys
import zlib

from PIL import Image


def make(count):
    sequence = random.Random(13)
    for n in range(count):
        width, height = sequence.randrange(500, 900), sequence.randrange(400, 600)
        gradient = Image.linear_gradient("L").resize((width, height)).rotate(sequence.randrange(360))
        noise = Image.frombytes("RGB", (width // 2, height // 2), sequence.randbytes(width // 2 * (height // 2) * 3))
        picture = Image.blend(gradient.convert("RGB"), noise.resize((width, height), Image.Resampling.BICUBIC), 0.5)
        picture.save(f"{n:03}.jpeg", quality=85)


def load(name):
    with Image.open(name) as picture:
        picture.thumbnail((128, 128))
        return f"{name} {zlib.crc32(picture.tobytes()):08x}"


if sys.argv[1] == "make":
    make(int(sys.argv[2]))
else:
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
        print(*pool.map(load, sorted(os.listdir("."))), sep="\n")
