#!/usr/bin/env python3
"""Opens what a study has measured, with pandas: python3 results.py DIR [RESPONSE]

Prints the mean, the standard deviation and the number of runs of each combination that counts, once
from results.csv and once from results.parquet (which needs pyarrow or fastparquet), and says
whether both agree.
"""

import sys
from pathlib import Path

import pandas


def by_combination(table, response):
    counted = table[table["counts"] == "yes"]
    # Factors stand between `counts` and the first measured value.
    names = list(table.columns)
    factors = names[names.index("counts") + 1 : names.index(first_value(folder))]
    return counted.groupby(factors, dropna=False)[response].agg(["mean", "std", "count"])


def first_value(folder):
    """The first column behind the factors: values stand in the order of their names."""
    import json

    line = (folder / "trials.jsonl").read_text().splitlines()[0]
    levels = json.loads(line)["levels"]
    names = list(pandas.read_csv(folder / "results.csv", nrows=0).columns)
    behind = names[names.index("counts") + 1 :]
    return next(name for name in behind if name not in levels)


folder = Path(sys.argv[1])
csv = pandas.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
response = sys.argv[2] if len(sys.argv) > 2 else first_value(folder)
table = by_combination(csv, response)
print(table.to_string())
try:
    parquet = pandas.read_parquet(folder / "results.parquet")
except ImportError as reason:
    sys.exit(f"results.parquet was not read: {reason}")
same = by_combination(parquet, response).reset_index(drop=True)
pandas.testing.assert_frame_equal(table.reset_index(drop=True), same, check_dtype=False)
print(f"results.parquet agrees: {len(parquet)} rows, {len(parquet.columns)} columns")
