//! How a study was made, from its file and its record: banner, question, methods, machine, raw
//! data.

use anyhow::Result;
use jiff::Timestamp;

use super::document::Document;
use super::results;
use crate::study::design::{Blocks, word};
use crate::study::record::{Folder, State, TrialRecord};

/// What stands first: what must not be overlooked, and the question.
pub(super) fn head(folder: &Folder, document: &mut Document) {
    let plan = &folder.plan;
    if plan.quick {
        document.banner(
            "QUICK RUN: short trials and few of them. It shows that the study runs; its figures \
             are no results.",
        );
    }
    let missing = plan.trials.iter().filter(|it| folder.counted(it.number).is_none()).count();
    if missing > 0 {
        document.banner(format!(
            "INCOMPLETE: {missing} of {} trials have no result (failed, or not run yet).",
            plan.trials.len()
        ));
    }
    let counted = plan.trials.iter().filter_map(|it| folder.counted(it.number));
    let disturbed = counted.filter(|it| it.state == State::Disturbed).count();
    if disturbed > 0 {
        document.banner(format!(
            "DISTURBED: in {disturbed} of {} trials other load took more than {} % of the \
             processors{}. They count below, for want of better ones.",
            plan.trials.len(),
            folder.study.design.disturbed_percent,
            if folder.study.design.repeats > 0 { ", also when repeated" } else { "" }
        ));
    }
    let changed = folder.changed_raw_files();
    if let Some(first) = changed.first() {
        document.banner(format!(
            "RAW DATA CHANGED: {} files are not as they were recorded; the first is {first}.",
            changed.len()
        ));
    }
    document.paragraph(&folder.study.question);
    if !folder.study.source.is_empty() {
        document.paragraph(format!("After {}.", folder.study.source));
    }
}

/// What stands last: methods, machine, trials that did not go as planned, raw data.
///
/// # Errors
/// The folder's files cannot be read.
pub(super) fn tail(folder: &Folder, document: &mut Document) -> Result<()> {
    methods(folder, document);
    machine(folder, document);
    mishaps(folder, document);
    document.heading("Raw data");
    let bytes: u64 = folder.records.iter().flat_map(|it| &it.raw).map(|it| it.bytes).sum();
    let files = folder.records.iter().flat_map(|it| &it.raw).count();
    document.paragraph(format!(
        "This file carries along the study, its plan (seed and order), results.csv (a row an \
         attempt) and samples.csv (a row a sample that counts). Beside it: the same as Parquet, \
         trials.jsonl (all that was recorded, with SHA-256 of each raw file), and in \
         raw/TRIAL-ATTEMPT/ what the tools said: {files} files, {:.1} MB. A mean above is the mean \
         of its lines in samples.csv, and those are the intervals in raw/. `weir prove report DIR` \
         makes this file again.",
        bytes as f64 / 1e6
    ));
    document.files(results::files(folder)?);
    Ok(())
}

fn methods(folder: &Folder, document: &mut Document) {
    let (study, plan) = (&folder.study, &folder.plan);
    document.heading("Methods");
    let order = match study.design.blocks {
        Blocks::None => "All trials ran in one random order",
        Blocks::Replicate => "Each replicate was a block with a random order of its own",
    };
    document.paragraph(format!(
        "{} combinations of levels, {} runs of each, {} trials. {order} (seed {}). Each trial was \
         measured in a lab of its own, which was removed after it. A trial is disturbed when other \
         processes or other guests of the machine took more than {} % of its processors, and \
         failed when a tool hung, failed, or gave no data. {}; a failed trial never counts. \
         The study stops by itself after {} failures in a row, and otherwise when \
         every trial has counted or used up its repeats.",
        study.combinations().len(),
        study.design.replicates,
        plan.trials.len(),
        plan.seed,
        study.design.disturbed_percent,
        match study.design.repeats {
            0 => "Neither was repeated".to_owned(),
            repeats => format!("Both were repeated up to {repeats} times after all others"),
        },
        study.design.failures,
    ));
    let first = plan.trials.first().and_then(|trial| study.steps_of(&trial.levels).ok());
    let steps = first.unwrap_or_default();
    let words = steps.iter().enumerate().map(|(at, it)| format!("{}. {}.", at + 1, it.words()));
    document.list(words.collect());
    let mut rows = Vec::new();
    for factor in &study.factors {
        for level in &factor.levels {
            let meaning = factor.meaning.get(&word(level)).cloned().unwrap_or_default();
            rows.push(vec![factor.name.clone(), word(level), meaning]);
        }
    }
    document.table(&["Factor", "Level", "Meaning"], rows, "What was varied.");
    if !plan.only.is_empty() {
        let only = plan.only.join(", ");
        document.paragraph(format!("Only part of the study was run: {only}."));
    }
    if !plan.dropped.is_empty() {
        let dropped = plan.dropped.join(", ");
        document.paragraph(format!(
            "Dropped, because the machine has not what it needs: factor {dropped}."
        ));
    }
    if !study.notes.is_empty() {
        document.paragraph("What stands in for what, and what differs from the paper:");
        document.list(study.notes.clone());
    }
}

fn machine(folder: &Folder, document: &mut Document) {
    document.heading("Machine");
    for (at, it) in folder.sessions.iter().enumerate() {
        let again = folder.sessions[..at].contains(it);
        if again {
            document.paragraph(format!("Session {}: the same machine and programs.", at + 1));
            continue;
        }
        let mut rows = vec![
            ["Processor".to_owned(), format!("{} x {}", it.processors, it.processor)],
            ["Memory".to_owned(), format!("{} MiB", it.memory_mib)],
            ["Kernel".to_owned(), it.kernel.clone()],
            ["System".to_owned(), it.system.clone()],
            [
                "Governor".to_owned(),
                it.governor.clone().unwrap_or_else(|| "none: no cpufreq on this machine".into()),
            ],
            [
                "Virtual".to_owned(),
                it.hypervisor.clone().map_or("no".into(), |it| format!("yes ({it})")),
            ],
            ["Weir".to_owned(), it.weir.clone()],
            ["SHA-256 of weir".to_owned(), it.weir_sha256.clone()],
            [
                "Commit".to_owned(),
                it.commit.clone().unwrap_or_else(|| "not from a checkout".into()),
            ],
        ];
        rows.extend(it.adapters.iter().map(|it| ["Adapter".to_owned(), it.clone()]));
        rows.extend(it.tools.iter().map(|(tool, version)| [tool.clone(), version.clone()]));
        let rows = rows.into_iter().map(Vec::from).collect();
        document.table(&["What", "Which"], rows, &format!("Session {}.", at + 1));
    }
}

fn mishaps(folder: &Folder, document: &mut Document) {
    let odd = folder.records.iter().filter(|it| it.state != State::Done);
    let row = |it: &TrialRecord| {
        let began = Timestamp::from_second(it.began as i64).map(|it| it.to_string());
        vec![
            it.trial.to_string(),
            it.attempt.to_string(),
            crate::study::design::label(&it.levels),
            it.state.word().to_owned(),
            it.reason.clone().unwrap_or_default(),
            began.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = odd.map(row).collect();
    if !rows.is_empty() {
        document.heading("Disturbed and failed attempts");
        let head = ["Trial", "Attempt", "Levels", "State", "Reason", "Began"];
        document.table(&head, rows, "None of the failed ones counts.");
    }
}
