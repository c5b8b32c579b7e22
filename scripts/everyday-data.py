"""Makes the data of the everyday commands of the benchmark below /data, the same each time."""
import os
import random
import sqlite3

import numpy
import pandas
import pyarrow
import pyarrow.parquet
from PIL import Image

from make_mapped_files import records, tensors

random.seed(3)
rng = numpy.random.default_rng(1)
os.makedirs("/data", exist_ok=True)
os.chdir("/data")


def directory(name):
    os.makedirs(name, exist_ok=True)
    return name


for n in range(300):
    table = {"a": rng.integers(0, 1000, 800), "b": rng.random(800), "c": rng.random(800)}
    pandas.DataFrame(table).to_csv(f"{directory('csv')}/{n:03}.csv", index=False)

for n in range(200):
    rows = 20_000
    table = {"k": rng.integers(0, 1000, rows), "v": rng.random(rows), "w": rng.random(rows)}
    pyarrow.parquet.write_table(pyarrow.table(table), f"{directory('pq')}/{n:03}.parquet")

records("lm", (n * 7919 % 1_000_003 for n in range(200_000)), rng, 1 << 30)

numpy.memmap("mm.bin", dtype="float64", mode="w+", shape=(1 << 26,))[:] = 1.5

words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20_000)]
with sqlite3.connect("fts.db") as db:
    db.execute("create virtual table d using fts5(t)")
    text = ((" ".join(random.choices(words, k=60)),) for _ in range(30_000))
    db.executemany("insert into d values (?)", text)
open("words.txt", "w").write("\n".join(words[:2]))

tensors("st.safetensors", 200, 256, rng)

for n in range(400):
    pixels = rng.integers(0, 255, (120, 160, 3), dtype="uint8")
    Image.fromarray(pixels).save(f"{directory('img')}/{n:03}.png")

for n in range(1000):
    lib = directory(f"mods/p{n:03}/lib")
    package = '{"name": "p%03d", "main": "lib/index.js", "description": "%s"}'
    about = "x" * random.randint(100, 4000)
    open(f"mods/p{n:03}/package.json", "w").write(package % (n, about))
    needs = "".join(f'require("../../p{m:03}");' for m in (2 * n + 1, 2 * n + 2) if m < 1000)
    code = f"{needs}module.exports={n};//" + "y" * random.randint(100, 20_000)
    open(f"{lib}/index.js", "w").write(code)

directory("go")
open("go/go.mod", "w").write("module x\ngo 1.19\n")
open("go/main.go", "w").write(
    'package main\nimport ("fmt"; "net/http"; "encoding/json")\n'
    "func main() { b, _ := json.Marshal(1); fmt.Println(http.StatusOK, string(b)) }\n"
)
open("b.cpp", "w").write("#include <boost/asio.hpp>\n#include <regex>\nint main() {}\n")
open("J.java", "w").write('public class J { public static void main(String[] a) { System.out.println(1); } }\n')
open("d.tex", "w").write(
    "\\documentclass{article}\\usepackage{amsmath}\\begin{document}Hello $x^2$\\end{document}\n"
)
open("t.txt", "w").write("Hello world\n" * 500)
open("img.py", "w").write(
    "import glob, multiprocessing\nfrom PIL import Image\n"
    "def one(path): return sum(Image.open(path).getpixel((3, 4)))\n"
    "if __name__ == '__main__':\n"
    "    with multiprocessing.Pool(8) as pool: print(sum(pool.map(one, sorted(glob.glob('/data/img/*.png')))))\n"
)
