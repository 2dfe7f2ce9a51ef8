//! What is wrong with a configuration: place, text, remedy. All problems are collected and shown
//! at once, in the order of the file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Problems of one file that are kept and shown, at most: nobody corrects more in one go. Errors
/// push warnings out, so that a file with an error is refused however many warnings it has.
pub const PROBLEMS_MAX: usize = 100;

/// What is expected, by whoever reads a table: types of ours are no words of our users'.
pub(super) fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not below 0",
        "i64" => "a whole number",
        other => other,
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It works, but somebody should look at it.
    Warning,
}

/// A line and a column, both from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line in the file, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
}

/// One thing that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// Where; absent when it concerns the file as a whole.
    #[serde(flatten)]
    pub place: Option<Position>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// The problems of one file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Problems {
    /// The file they are in.
    pub file: PathBuf,
    /// Sorted by place.
    pub problems: Vec<Problem>,
    #[serde(skip)]
    source: String,
    #[serde(skip)]
    is_cut: bool,
}

impl Problems {
    /// No problems yet with `file`, whose text is `source`.
    pub fn new(file: &Path, source: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: Vec::new(),
            source: source.to_owned(),
            is_cut: false,
        }
    }

    /// Adds an error at `span` (bytes of the source).
    pub fn error(
        &mut self,
        span: Range<usize>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Error, Some(span), what.into(), remedy.into());
    }

    /// Adds a warning at `span`.
    pub fn warning(
        &mut self,
        span: Range<usize>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Warning, Some(span), what.into(), remedy.into());
    }

    /// Adds an error that concerns the file as a whole.
    pub fn error_in_file(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Error, None, what.into(), remedy.into());
    }

    /// Adds a warning that concerns the file as a whole.
    pub fn warning_in_file(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Warning, None, what.into(), remedy.into());
    }

    /// Whether the configuration is refused.
    pub fn refused(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// How many problems are of `severity`.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }

    /// Whether no further error is kept.
    pub fn full(&self) -> bool {
        self.count(Severity::Error) >= PROBLEMS_MAX
    }

    fn add(
        &mut self,
        severity: Severity,
        span: Option<Range<usize>>,
        what: String,
        remedy: String,
    ) {
        if self.problems.len() >= PROBLEMS_MAX {
            self.is_cut = true;
            let warning = self.problems.iter().rposition(|it| it.severity == Severity::Warning);
            match warning.filter(|_| severity == Severity::Error) {
                Some(warning) => drop(self.problems.remove(warning)),
                None => return,
            }
        }
        let place = span.map(|span| place_of(&self.source, span.start));
        self.problems.push(Problem { severity, place, what, remedy });
        self.problems.sort_by_key(|problem| problem.place);
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(f, "{}", self.file.display())?;
            if let Some(place) = problem.place {
                write!(f, ":{}:{}", place.line, place.column)?;
            }
            let severity = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            writeln!(f, ": {severity}: {}\n    remedy: {}", problem.what, problem.remedy)?;
        }
        if self.is_cut || self.full() {
            writeln!(f, "{}: only the first {PROBLEMS_MAX} are shown", self.file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

fn place_of(source: &str, offset: usize) -> Position {
    let mut end = offset.min(source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let before = &source[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Position {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        assert_eq!(place_of("", 0), Position { line: 1, column: 1 });
        assert_eq!(place_of("a\nbc", 3), Position { line: 2, column: 2 });
        assert_eq!(place_of("ä = 1\n", 3), Position { line: 1, column: 3 });
    }

    #[test]
    fn an_error_behind_a_flood_of_warnings_still_refuses() {
        let text = "a\n".repeat(2 * PROBLEMS_MAX);
        let mut problems = Problems::new(Path::new("test"), &text);
        for line in 0..2 * PROBLEMS_MAX {
            problems.warning(2 * line..2 * line, "warning", "look");
        }
        assert!(!problems.refused());
        problems.error(0..0, "wrong", "right");
        assert!(problems.refused());
        assert_eq!(problems.problems.len(), PROBLEMS_MAX);
        assert!(problems.to_string().contains("only the first"));
    }

    #[test]
    fn an_offset_inside_a_character_or_past_the_end_is_no_panic() {
        assert_eq!(place_of("ä", 1), Position { line: 1, column: 1 });
        assert_eq!(place_of("a", 99), Position { line: 1, column: 2 });
    }
}
