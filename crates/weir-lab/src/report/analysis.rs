//! Combinations of levels in numbers, and whether they differ.
//!
//! Tests compare runs, not samples: the seconds of one run depend on each other, and counting each
//! as an experiment of its own would find differences everywhere.

use std::collections::BTreeMap;

use super::document::Document;
use super::effects;
use super::{number, p_is, probability};
use crate::stats::{self, Summary};
use crate::study::design::{Response, Threshold, word};
use crate::study::record::{Folder, TrialRecord};

/// Combinations, at most, whose pairs are all listed.
const PAIRS_LISTED: usize = 66;

/// A response over all combinations.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) response: Response,
    pub(super) cells: Vec<Cell>,
}

/// A combination of levels.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) levels: BTreeMap<String, String>,
    /// Its levels without their factors' names and without `none`.
    pub(super) name: String,
    /// The response of each run that counts.
    pub(super) runs: Vec<f64>,
    /// Samples by run.
    pub(super) samples: Vec<Vec<f64>>,
}

impl Cell {
    /// Samples of all runs; where runs have none, the runs.
    pub(super) fn pooled(&self) -> Vec<f64> {
        let all: Vec<f64> = self.samples.iter().flatten().copied().collect();
        if all.is_empty() { self.runs.clone() } else { all }
    }
}

/// Every response.
pub(super) fn analyse(folder: &Folder) -> Vec<Analysis> {
    let responses = folder.study.responses.iter().cloned();
    responses.map(|response| of_response(folder, response)).collect()
}

fn of_response(folder: &Folder, response: Response) -> Analysis {
    let factors = folder.study.factor_names();
    let cells = folder.study.combinations().into_iter().map(|levels| {
        let trials = folder.plan.trials.iter().filter(|trial| trial.levels == levels);
        let counted: Vec<&TrialRecord> =
            trials.filter_map(|trial| folder.counted(trial.number)).collect();
        let words = factors.iter().filter_map(|factor| levels.get(*factor));
        let words: Vec<&str> = words.map(String::as_str).filter(|it| *it != "none").collect();
        let samples = counted.iter().filter_map(|it| it.samples.get(&response.name).cloned());
        Cell {
            name: words.join(" "),
            runs: counted.iter().filter_map(|it| it.values.get(&response.name).copied()).collect(),
            samples: samples.collect(),
            levels,
        }
    });
    Analysis { cells: cells.collect(), response }
}

/// All responses of every combination: means over runs.
pub(super) fn overview(analyses: &[Analysis], document: &mut Document) {
    document.heading("Overview");
    let mut head = vec!["Combination".to_owned(), "Runs".to_owned()];
    head.extend(analyses.iter().map(|it| format!("{} ({})", it.response.title, it.response.unit)));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let Some(first) = analyses.first() else { return };
    let rows = first.cells.iter().enumerate().map(|(at, cell)| {
        // Some responses are not for every combination.
        let runs = analyses.iter().map(|it| it.cells[at].runs.len()).max().unwrap_or(0);
        let mut row = vec![cell.name.clone(), runs.to_string()];
        for analysis in analyses {
            let runs = &analysis.cells[at].runs;
            row.push(if runs.is_empty() { "-".into() } else { number(stats::mean(runs)) });
        }
        row
    });
    document.table(&head, rows.collect(), "Means over runs.");
}

/// Whether each combination meets what the study asks for.
pub(super) fn requirements(
    thresholds: &[Threshold],
    analyses: &[Analysis],
    document: &mut Document,
) {
    let Some(first) = analyses.first().filter(|_| !thresholds.is_empty()) else { return };
    document.heading("Requirements");
    let mut head = vec!["Combination".to_owned()];
    head.extend(thresholds.iter().map(|it| it.name.clone()));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows = first.cells.iter().enumerate().map(|(at, cell)| {
        let mut row = vec![cell.name.clone()];
        row.extend(thresholds.iter().map(|it| is_met(it, analyses, at).to_owned()));
        row
    });
    let asked: Vec<String> = thresholds
        .iter()
        .map(|it| {
            let share = match it.share_of.is_empty() {
                true => String::new(),
                false => {
                    let levels = it.share_of.values().map(word).collect::<Vec<_>>();
                    format!(" % of {}'s", levels.join(" "))
                }
            };
            format!("{}: {} of at least {}{share}", it.name, it.response, number(it.at_least))
        })
        .collect();
    document.table(&head, rows.collect(), &format!("By means over runs. {}.", asked.join("; ")));
}

/// Whether the combination at that place meets the requirement: yes, no, or a dash where it was not
/// measured.
pub(super) fn is_met(threshold: &Threshold, analyses: &[Analysis], at: usize) -> &'static str {
    let of = analyses.iter().find(|it| it.response.name == threshold.response);
    let Some(of) = of.filter(|it| !it.cells[at].runs.is_empty()) else { return "-" };
    let mut value = stats::mean(&of.cells[at].runs);
    if !threshold.share_of.is_empty() {
        let mut wanted = of.cells[at].levels.clone();
        let others = threshold.share_of.iter().map(|(factor, it)| (factor.clone(), word(it)));
        wanted.extend(others);
        let whole = of.cells.iter().find(|it| it.levels == wanted && !it.runs.is_empty());
        let Some(whole) = whole else { return "-" };
        value = 100.0 * value / stats::mean(&whole.runs);
    }
    if value >= threshold.at_least { "yes" } else { "no" }
}

/// The table of combinations.
pub(super) fn tables(folder: &Folder, analysis: &Analysis, document: &mut Document) {
    let Response { title, unit, .. } = &analysis.response;
    document.heading(format!("{title} ({unit})"));
    let baseline = baseline(folder, analysis);
    let sampled = analysis.cells.iter().any(|cell| !cell.samples.is_empty());
    let rows = analysis.cells.iter().map(|cell| {
        let described = stats::summary(&cell.pooled());
        let mut row = vec![cell.name.clone(), cell.runs.len().to_string()];
        row.push(described.map_or("-".into(), |it| it.n.to_string()));
        row.extend(described_cells(described));
        row.push(optional(stats::standard_deviation(&cell.runs)));
        row.push(interval(stats::mean_interval(&cell.runs, folder.plan.seed)));
        let share = baseline.filter(|it| *it != 0.0 && !cell.runs.is_empty());
        let share = share.map(|it| 100.0 * stats::mean(&cell.runs) / it);
        row.push(share.map_or("-".into(), |it| format!("{it:.1} %")));
        row
    });
    let share = match baseline {
        Some(_) => "Share of baseline",
        None => "Share",
    };
    let head = [
        "Combination",
        "Runs",
        "Samples",
        "Mean",
        "Max",
        "Min",
        "SD of samples",
        "CV",
        "SD between runs",
        "95 % of mean",
        share,
    ];
    let samples = if sampled { "samples of all runs" } else { "runs" };
    let caption = format!(
        "{title}, {unit}: mean, maximum, minimum, standard deviation and coefficient of variation \
         over {samples}; standard deviation and bootstrap interval of the mean over runs."
    );
    document.table(&head, rows.collect(), &caption);
}

fn described_cells(described: Option<Summary>) -> [String; 5] {
    match described {
        None => ["-", "-", "-", "-", "-"].map(str::to_owned),
        Some(it) => [
            number(it.mean),
            number(it.max),
            number(it.min),
            optional(it.sd),
            it.cv.map_or("-".into(), |cv| format!("{:.1} %", cv * 100.0)),
        ],
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".into(), number)
}

fn interval(interval: Option<[f64; 2]>) -> String {
    interval.map_or("-".into(), |[low, high]| format!("{} to {}", number(low), number(high)))
}

/// The mean of the combination that others are a share of.
pub(super) fn baseline(folder: &Folder, analysis: &Analysis) -> Option<f64> {
    let wanted = &folder.study.report.baseline;
    let is_it = |cell: &&Cell| {
        wanted.iter().all(|(factor, level)| cell.levels.get(factor) == Some(&word(level)))
    };
    let cell = analysis.cells.iter().find(is_it).filter(|_| !wanted.is_empty())?;
    (!cell.runs.is_empty()).then(|| stats::mean(&cell.runs))
}

/// Whether combinations, or factors, differ.
pub(super) fn tests(folder: &Folder, analysis: &Analysis, document: &mut Document) {
    let factors = &folder.study.report.factors;
    document.heading(format!("Does {} differ?", analysis.response.title.to_lowercase()));
    if factors.is_empty() {
        let groups: Vec<(String, Vec<f64>)> = analysis
            .cells
            .iter()
            .filter(|cell| !cell.runs.is_empty())
            .map(|cell| (cell.name.clone(), cell.runs.clone()))
            .collect();
        test_of("combination", &groups, document);
    }
    for factor in factors {
        test_of(factor, &by_factor(analysis, factor), document);
    }
    residuals(analysis, document);
    effects::effects(folder, analysis, document);
}

/// Runs by level of a factor, levels as the study has them.
pub(super) fn by_factor(analysis: &Analysis, factor: &str) -> Vec<(String, Vec<f64>)> {
    let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
    for cell in &analysis.cells {
        let Some(level) = cell.levels.get(factor) else { continue };
        match groups.iter_mut().find(|(name, _)| name == level) {
            Some((_, runs)) => runs.extend(&cell.runs),
            None => groups.push((level.clone(), cell.runs.clone())),
        }
    }
    groups.retain(|(_, runs)| !runs.is_empty());
    groups
}

fn test_of(what: &str, groups: &[(String, Vec<f64>)], document: &mut Document) {
    if groups.len() < 2 {
        document.paragraph(format!("Fewer than two levels of {what} were measured: no test."));
        return;
    }
    let test = stats::table::factor_test(groups);
    let (Some(h), Some(p), Some(effect)) = (test.h, test.p, test.epsilon_squared) else {
        document.paragraph(format!("By {what}: all runs are equal, no test."));
        return;
    };
    let runs: Vec<usize> = groups.iter().map(|(_, runs)| runs.len()).collect();
    let least = runs.iter().min().copied().unwrap_or(0);
    let few = if least < 5 {
        " Groups of fewer than five runs make its p approximate and its power low."
    } else {
        ""
    };
    let verdict = if p < 0.05 { "differs" } else { "does not differ significantly" };
    document.paragraph(format!(
        "By {what} it {verdict}: Kruskal-Wallis H = {}, df = {}, {}, epsilon squared = \
         {effect:.3}.{few}",
        number(h),
        test.df,
        p_is(p),
    ));
    if test.pairs.len() <= PAIRS_LISTED {
        let rows = test.pairs.iter().zip(mann_whitney(groups)).map(|(pair, p)| {
            vec![
                pair.a.clone(),
                pair.b.clone(),
                pair.z.map_or("-".into(), |z| format!("{z:.3}")),
                pair.p_holm.map_or("-".into(), probability),
                probability(p),
                format!("{:.2}", pair.cliffs_delta),
            ]
        });
        let head = ["A", "B", "Dunn's z", "p (Holm)", "Mann-Whitney's p (Holm)", "Cliff's delta"];
        document.table(&head, rows.collect(), &format!("Pairs by {what}, over runs."));
    }
}

/// p of Mann and Whitney for every pair of groups, corrected for all of them.
fn mann_whitney(groups: &[(String, Vec<f64>)]) -> Vec<f64> {
    let mut p = Vec::new();
    for (at, (_, a)) in groups.iter().enumerate() {
        let others = groups[at + 1..].iter();
        // Equal samples are no sign of a difference.
        p.extend(others.map(|(_, b)| stats::mann_whitney(a, b).map_or(1.0, |it| it.p)));
    }
    stats::holm(&p)
}

/// What a run has beyond its combination's mean: normal, alike?
fn residuals(analysis: &Analysis, document: &mut Document) {
    let groups: Vec<Vec<f64>> =
        analysis.cells.iter().filter(|it| it.runs.len() > 1).map(|it| it.runs.clone()).collect();
    let residual = |group: &Vec<f64>| {
        let mean = stats::mean(group);
        group.iter().map(move |it| it - mean).collect::<Vec<f64>>()
    };
    let residuals: Vec<f64> = groups.iter().flat_map(residual).collect();
    let mut words = Vec::new();
    if let Some(test) = stats::shapiro_wilk(&residuals) {
        words.push(format!("Shapiro-Wilk on residuals W = {:.4}, {}", test.w, p_is(test.p)));
    }
    if let Some(test) = stats::levene(&groups) {
        words.push(format!("Levene (medians) W = {:.3}, {}", test.w, p_is(test.p)));
    }
    if let Some(test) = stats::anova(&groups) {
        words.push(format!(
            "one-way analysis of variance F({}, {}) = {}, {}",
            test.df_between,
            test.df_within,
            number(test.f),
            p_is(test.p)
        ));
    }
    if !words.is_empty() {
        let words = words.join("; ");
        document.paragraph(format!("For comparison, over runs: {words}."));
    }
}

/// Who used the processors, and what held runs back.
pub(super) fn processors(folder: &Folder, document: &mut Document) {
    let mut rows = Vec::new();
    for trial in &folder.plan.trials {
        let Some(record) = folder.counted(trial.number) else { continue };
        let Some(load) = &record.load else { continue };
        let part = |name: &str| format!("{:.2}", load.parts.get(name).copied().unwrap_or(0.0));
        rows.push(vec![
            trial.number.to_string(),
            trial.label(),
            part("generator"),
            part("hosts"),
            part("gateways"),
            format!("{:.2}", load.others),
            format!("{:.2}", load.stolen),
            load.bottleneck.clone(),
        ]);
    }
    if rows.is_empty() {
        return;
    }
    document.heading("Processors");
    let head =
        ["Trial", "Levels", "Generator", "Hosts", "Gateways", "Others", "Stolen", "Bottleneck"];
    let caption = "Processors used during each trial (1 is one of them, all the time): by iperf3 \
                   and other generators, by the hosts' own programs, by the gateways, by other \
                   processes of the machine and by other guests of the machine below it.";
    document.table(&head, rows, caption);
}
