"""SciPy's answers for tests/stats.rs: groups of samples in (JSON), statistics out.

Dunn's test is not in SciPy: it is scikit-posthocs' where that is installed, and absent elsewhere.
"""

import json
import sys

from scipy import stats


def pair(result):
    return [float(result.statistic), float(result.pvalue)]


def dunn(groups):
    try:
        import scikit_posthocs
    except ImportError:
        return None
    return scikit_posthocs.posthoc_dunn(groups, p_adjust="holm").values.tolist()


def answers(groups):
    samples = [value for group in groups for value in group]
    several = len(groups) > 1
    return {
        "kruskal_wallis": pair(stats.kruskal(*groups)) if several else None,
        "dunn_holm": dunn(groups) if several else None,
        "mann_whitney": pair(stats.mannwhitneyu(groups[0], groups[1])) if several else None,
        "levene": pair(stats.levene(*groups, center="median")) if several else None,
        "anova": pair(stats.f_oneway(*groups)) if several else None,
        "shapiro_wilk": pair(stats.shapiro(samples)),
    }


json.dump({name: answers(groups) for name, groups in json.load(sys.stdin).items()}, sys.stdout)
