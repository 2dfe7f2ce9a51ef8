//! Which factors matter, and do they interact: a screening table as Diamond et al. (2022, 5.1.1)
//! print it, analysis of variance on aligned ranks and on means, and what is left over.

use super::analysis::{Analysis, by_factor};
use super::document::Document;
use super::{number, p_is, probability};
use crate::stats::{self, Effect, Observation};
use crate::study::record::Folder;

/// Confidence levels that are told apart, highest first.
const LEVELS: [(f64, &str); 4] = [(0.001, "99.9 %"), (0.01, "99 %"), (0.05, "95 %"), (0.1, "90 %")];

/// All of it, where the study has several factors to test.
pub(super) fn effects(folder: &Folder, analysis: &Analysis, document: &mut Document) {
    let factors = &folder.study.report.factors;
    if let Some(by) = &folder.study.report.screen {
        screening(analysis, factors, by, document);
    }
    // A factor that `--only` or `--quick` left one level is none.
    let varied: Vec<&String> =
        factors.iter().filter(|it| by_factor(analysis, it).len() > 1).collect();
    if varied.len() < 2 {
        return;
    }
    let observations = observations(analysis, &varied);
    let (aligned, plain) =
        (stats::aligned_rank_effects(&observations), stats::effects(&observations));
    let names: Vec<&str> = varied.iter().map(|it| it.as_str()).collect();
    let title = analysis.response.title.to_lowercase();
    if aligned.is_empty() {
        document.paragraph(format!(
            "No analysis of interactions between {} on {title}: it needs every combination of \
             their levels, and more than one run of each.",
            names.join(", ")
        ));
        return;
    }
    let row = |effect: &Effect| {
        let term: Vec<&str> = effect.factors.iter().map(|at| names[*at]).collect();
        let mean = plain.iter().find(|it| it.factors == effect.factors);
        vec![
            term.join(" x "),
            format!("{}, {}", effect.df, effect.df_residual),
            number(effect.f),
            probability(effect.p),
            mean.map_or("-".into(), |it| number(it.f)),
            mean.map_or("-".into(), |it| probability(it.p)),
            mean.map_or("-".into(), |it| format!("{:.3}", it.partial_eta_squared)),
        ]
    };
    let head = [
        "Effect",
        "df",
        "F, aligned ranks",
        "p, aligned ranks",
        "F, means",
        "p, means",
        "Partial eta squared",
    ];
    let caption = format!(
        "Effects of factors and of their interactions on {title}, over runs: analysis of variance \
         on aligned ranks (Wobbrock et al. 2011), and on the means for comparison, type III."
    );
    document.table(&head, aligned.iter().map(row).collect(), &caption);
    residual_check(&observations, document);
}

/// Kruskal-Wallis of each factor, within each level of `by`.
fn screening(analysis: &Analysis, factors: &[String], by: &str, document: &mut Document) {
    let columns: Vec<String> = by_factor(analysis, by).into_iter().map(|it| it.0).collect();
    let others = factors.iter().filter(|it| *it != by);
    let rows: Vec<Vec<String>> = others
        .map(|factor| {
            let cells = columns.iter().map(|level| significance(analysis, factor, (by, level)));
            std::iter::once(factor.clone()).chain(cells).collect()
        })
        .collect();
    let mut head = vec!["Factor"];
    head.extend(columns.iter().map(String::as_str));
    let caption = format!(
        "Does {} depend on the factor? Kruskal-Wallis within each {by}: the highest confidence \
         level of 90, 95, 99 and 99.9 % that its p reaches, with epsilon squared; N.S.: none.",
        analysis.response.title.to_lowercase()
    );
    document.table(&head, rows, &caption);
}

fn significance(analysis: &Analysis, factor: &str, (by, level): (&str, &str)) -> String {
    let mut part = Analysis { response: analysis.response.clone(), cells: Vec::new() };
    let is_of = |levels: &std::collections::BTreeMap<String, String>| {
        levels.get(by).map(String::as_str) == Some(level)
    };
    part.cells.extend(analysis.cells.iter().filter(|it| is_of(&it.levels)).cloned());
    let groups: Vec<Vec<f64>> = by_factor(&part, factor).into_iter().map(|it| it.1).collect();
    match stats::kruskal_wallis(&groups) {
        None => "-".to_owned(),
        Some(test) => {
            let reached = LEVELS.iter().find(|(p, _)| test.p < *p);
            let words = reached.map_or("N.S.", |(_, words)| words);
            format!("{words} (p {}, {:.2})", probability(test.p), test.epsilon_squared)
        }
    }
}

fn observations(analysis: &Analysis, factors: &[&String]) -> Vec<Observation> {
    let names: Vec<Vec<String>> = factors
        .iter()
        .map(|it| by_factor(analysis, it).into_iter().map(|group| group.0).collect())
        .collect();
    let mut all = Vec::new();
    for cell in &analysis.cells {
        let place = |at: usize| {
            let level = cell.levels.get(factors[at])?;
            names[at].iter().position(|name| name == level)
        };
        let levels: Vec<usize> = (0..factors.len()).filter_map(place).collect();
        if levels.len() == factors.len() {
            let of_run = |value: &f64| Observation { levels: levels.clone(), value: *value };
            all.extend(cell.runs.iter().map(of_run));
        }
    }
    all
}

fn residual_check(observations: &[Observation], document: &mut Document) {
    let residuals = stats::residuals(observations);
    if let Some(test) = stats::shapiro_wilk(&residuals) {
        let verdict = match test.p < 0.05 {
            true => "not normal: believe the aligned ranks",
            false => "not told from normal ones: both analyses may be believed",
        };
        document.paragraph(format!(
            "Residuals of the full model: {verdict} (Shapiro-Wilk W = {:.4}, {}).",
            test.w,
            p_is(test.p)
        ));
    }
}
