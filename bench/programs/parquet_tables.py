"""parquet_tables.py make FILES ROWS: orders in FILES Parquet files of ROWS rows, and a quarter as many files of customers, by DuckDB.
parquet_tables.py query: an aggregate over the orders, and a join of them with their customers."""
import os
import sys

import duckdb

duckdb.sql("set enable_progress_bar = false")

# What the queries read is between wider columns that they do not.
ORDERS = """select i as id, md5(i::varchar) as note, (hash(i) % {customers})::integer as customer, md5((i + 1)::varchar) as address,
    (hash(i + 1) % 1000)::integer as kind, md5((i + 2)::varchar) as product, (hash(i + 2) % 100000)::integer as amount,
    md5((i + 3)::varchar) as seller, date '2020-01-01' + (hash(i + 3) % 1500)::integer as day, md5((i + 4)::varchar) as mark
    from range({first}, {last}) t(i)"""
CUSTOMERS = """select i as id, md5((i + 7)::varchar) as name, 'region ' || hash(i) % 20 as region,
    md5((i + 8)::varchar) as address, (hash(i + 4) % 90)::integer as age, md5((i + 9)::varchar) as mark
    from range({first}, {last}) t(i)"""


def make(name, select, files, rows, **sizes):
    os.mkdir(name)
    for n in range(files):
        rows_of_file = select.format(first=n * rows, last=(n + 1) * rows, **sizes)
        duckdb.sql(f"copy ({rows_of_file}) to '{name}/{n:03}.parquet' (format parquet)")


if sys.argv[1] == "make":
    files, rows = int(sys.argv[2]), int(sys.argv[3])
    make("customers", CUSTOMERS, files // 4, rows)
    make("orders", ORDERS, files, rows, customers=files // 4 * rows)
else:
    print(*duckdb.sql("select kind, count(*), sum(amount) from 'orders/*.parquet' group by kind order by 3, 1 limit 9").fetchall())
    print(*duckdb.sql("""select region, count(*), sum(amount), max(day) from 'orders/*.parquet' o
        join 'customers/*.parquet' c on o.customer = c.id where age < 30 group by region order by region""").fetchall())
