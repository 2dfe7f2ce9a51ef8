"""Type III analysis of variance by statsmodels, on means and on aligned ranks.

Reads [[levels, value], ...] and prints {"means": {"0": [F, p], "0:1": ...}, "aligned": {...}}. The
alignment is written here from Wobbrock et al. (2011), with NumPy alone.
"""

import itertools
import json
import sys

import pandas
from scipy.stats import rankdata
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

rows = json.load(sys.stdin)
count = len(rows[0][0])
names = [f"f{at}" for at in range(count)]
data = pandas.DataFrame([levels + [value] for levels, value in rows], columns=names + ["y"])


def analysed(column):
    frame = data.assign(target=column)
    terms = " * ".join(f"C({name}, Sum)" for name in names)
    return anova_lm(ols(f"target ~ {terms}", frame).fit(), typ=3)


def answer(table, term):
    row = table.loc[":".join(f"C(f{at}, Sum)" for at in term)]
    return [float(row["F"]), float(row["PR(>F)"])]


def means(factors):
    if not factors:
        return data["y"].mean()
    return data.groupby([f"f{at}" for at in factors])["y"].transform("mean")


answers = {"means": {}, "aligned": {}}
plain = analysed(data["y"])
for size in range(1, count + 1):
    for term in itertools.combinations(range(count), size):
        key = ":".join(str(at) for at in term)
        answers["means"][key] = answer(plain, term)
        aligned = data["y"] - means(range(count))
        for length in range(size + 1):
            for part in itertools.combinations(term, length):
                aligned = aligned + (-1) ** (size - length) * means(part)
        answers["aligned"][key] = answer(analysed(rankdata(aligned.round(9))), term)
json.dump(answers, sys.stdout)
