"""Partial aggregates of Arrow tables, combined: tables are read in place by every task."""
# expect: 50 groups of 400000 rows, total 19800000

import sys

import numpy
import pyarrow
import pyarrow.compute

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def table(seed):
    draw = numpy.random.default_rng(seed)
    values = numpy.tile(numpy.arange(100), 1000)
    draw.shuffle(values)
    return pyarrow.table({"key": draw.integers(0, 50, 100_000), "value": values})


@bireme.remote
def aggregate(table):
    return table.group_by("key").aggregate([("value", "sum"), ("value", "count")])


parts = bireme.get([aggregate.remote(table.remote(seed)) for seed in range(4)])
whole = pyarrow.concat_tables(parts).group_by("key").aggregate([("value_sum", "sum"), ("value_count", "sum")])
rows = pyarrow.compute.sum(whole["value_count_sum"]).as_py()
total = pyarrow.compute.sum(whole["value_sum_sum"]).as_py()
print(f"{whole.num_rows} groups of {rows} rows, total {total}")
