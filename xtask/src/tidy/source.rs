//! Rules for single files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Characters of a line, at most.
const COLUMNS_MAX: usize = 100;

/// Lines of a function, at most.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of a source file without its tests, at most.
const FILE_LINES_MAX: usize = 700;

/// Names that say nothing about what is inside.
const BANNED_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"];

/// Folders of one developer's machine; in pieces, so that this file passes its own rule.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/")];

/// Findings in the file `path`, whose text is `text`.
pub(super) fn check(path: &Path, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found =
        |line: usize, what: String| findings.push(format!("{}:{line}: {what}", path.display()));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    let written = matches!(extension, "rs" | "c" | "h" | "py" | "toml" | "md" | "service" | "");
    if BANNED_NAMES.contains(&stem.to_lowercase().as_str()) {
        found(1, format!("`{stem}` says nothing about what is inside; name it after that"));
    }
    if stem == "Cargo" && extension == "lock" {
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("source = ") && !line.contains("github.com/rust-lang/crates.io-") {
                found(number + 1, "a package that does not come from crates.io".to_owned());
            }
        }
    }
    if !written {
        return findings;
    }
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        if MACHINE_PATHS.iter().any(|machine| line.contains(machine)) {
            found(number, "a path of somebody's machine".to_owned());
        }
        if !matches!(extension, "rs" | "c" | "h") {
            continue;
        }
        let table = line.trim_start().starts_with("//") && line.contains("| ");
        if line.chars().count() > COLUMNS_MAX && !table {
            found(number, format!("longer than {COLUMNS_MAX} columns"));
        }
        if extension == "rs" && line.contains('\t') {
            found(number, "a tab".to_owned());
        }
    }
    if extension == "rs" {
        for (line, name, length) in functions(text) {
            if length > FUNCTION_LINES_MAX {
                found(line, format!("fn {name} has {length} lines, {FUNCTION_LINES_MAX} at most"));
            }
        }
        let own = text.lines().position(|line| line == "#[cfg(test)]");
        let lines = own.unwrap_or(text.lines().count());
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        if lines > FILE_LINES_MAX && !is_test {
            found(1, format!("{lines} lines without tests, {FILE_LINES_MAX} at most"));
        }
    }
    findings
}

/// Line, name and length of every function, as rustfmt writes them: a function ends at the first
/// closing brace that is indented like its first line.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let one_line = line.trim_end().ends_with('}') || line.trim_end().ends_with(';');
        // A declaration of a foreign function has no body.
        let semicolon = format!("{})", " ".repeat(indent));
        let declared = lines[index..]
            .iter()
            .position(|line| line.starts_with(&semicolon) && line.ends_with(';'));
        let closed = lines[index..].iter().position(|line| **line == *end);
        let length = match closed.filter(|end| declared.is_none_or(|it| it > *end)) {
            Some(offset) if !one_line => offset + 1,
            _ => 1,
        };
        found.push((index + 1, name.to_owned(), length));
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    const BEFORE: &[&str] = &["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let (before, after) = line.split_once("fn ")?;
    let modifiers =
        before.split_whitespace().all(|it| BEFORE.contains(&it) || it.starts_with("pub("));
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (modifiers && end > 0).then(|| &after[..end])
}

/// Source files that no `mod` reaches: they look alive and are never compiled.
pub(super) fn unlinked(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let known: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    let in_src = |path: &Path| path.components().any(|part| part.as_os_str() == "src");
    files
        .iter()
        .filter(|path| path.extension().is_some_and(|it| it == "rs") && in_src(path))
        .filter(|path| !is_linked(path, &known))
        .map(|path| {
            let shown = path.strip_prefix(root).unwrap_or(path);
            format!("{}:1: no `mod` links this file", shown.display())
        })
        .collect()
}

fn is_linked(path: &Path, known: &BTreeSet<&Path>) -> bool {
    let Some((folder, stem)) = path.parent().zip(path.file_stem().and_then(|it| it.to_str()))
    else {
        return true;
    };
    if matches!(stem, "lib" | "main") || folder.ends_with("bin") {
        return true;
    }
    let (folder, module) = if stem == "mod" {
        let name = folder.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        (folder.parent().unwrap_or(folder), name)
    } else {
        (folder, stem)
    };
    let parents = ["mod.rs", "lib.rs", "main.rs"]
        .map(|name| folder.join(name))
        .into_iter()
        .chain([folder.with_extension("rs")]);
    parents.filter(|parent| known.contains(parent.as_path())).any(|parent| {
        let text = std::fs::read_to_string(parent).unwrap_or_default();
        text.lines().any(|line| declares(line, module))
    })
}

fn declares(line: &str, module: &str) -> bool {
    let line = line.trim();
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c: char| c == '(' || c == ')' || c.is_alphabetic()),
        None => line,
    };
    let rest = line.trim_start().strip_prefix("mod ").and_then(|it| it.strip_prefix(module));
    rest.is_some_and(|rest| rest.starts_with(';') || rest.starts_with(" {"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        check(Path::new(name), text)
    }

    #[test]
    fn a_function_of_70_lines_passes_and_of_71_does_not() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        assert_eq!(found("a.rs", &function(70)), Vec::<String>::new());
        assert_eq!(found("a.rs", &function(71)), ["a.rs:1: fn f has 71 lines, 70 at most"]);
        let inner =
            format!("impl A {{\n    pub(crate) const fn g() {{\n{}    }}\n}}\n", "x\n".repeat(80));
        assert_eq!(found("a.rs", &inner).len(), 1);
    }

    #[test]
    fn lines_tabs_names_and_machine_paths_are_found() {
        assert_eq!(found("a.rs", &"x".repeat(101)).len(), 1);
        assert_eq!(found("a.rs", &"ä".repeat(100)).len(), 0);
        assert_eq!(found("a.rs", "\tx").len(), 1);
        assert_eq!(found("src/utils.rs", "").len(), 1);
        assert_eq!(found("a.md", &format!("see {}x", MACHINE_PATHS[0])).len(), 1);
        let foreign = "source = \"registry+https://example.org/index\"\n";
        assert_eq!(found("Cargo.lock", foreign).len(), 1);
    }

    #[test]
    fn long_files_are_found_without_counting_their_tests() {
        let text = format!("{}#[cfg(test)]\n{}", "//\n".repeat(700), "//\n".repeat(500));
        assert_eq!(found("src/a.rs", &text), Vec::<String>::new());
        assert_eq!(found("src/a.rs", &format!("//\n{text}")).len(), 1);
    }

    #[test]
    fn modules_are_linked_by_every_form_of_declaration() {
        for line in ["mod a;", "pub mod a;", "pub(crate) mod a;", "    pub(super) mod a;"] {
            assert!(declares(line, "a"), "{line}");
        }
        for line in ["mod ab;", "// mod a;", "use a;", "mod b;"] {
            assert!(!declares(line, "a"), "{line}");
        }
    }
}
