//! Rule files from disk: what `weir rules check`, `weir read --rules` and the daemon load.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weir_detect::dataset::{self, FileLocation, NamedFile};
use weir_detect::{Classes, LoadOptions, LoadReport, Loaded, RuleSet, RuleSource, Variables};

use crate::countries;

mod addresses;
pub(crate) mod classes;
pub(crate) mod yaml;

pub use addresses::Lists;
use yaml::Yaml;

/// Bytes of one rule file, at most; a longer one is refused.
const FILE_LEN_MAX: u64 = 256 << 20;
/// Files of folders, at most.
const FILES_MAX: usize = 10_000;
/// Folders that are looked into, at most, each as often as links lead to it.
const FOLDERS_MAX: usize = 1_000;

/// The text of rules, with all that decides what it means.
#[derive(Clone, Debug, Hash)]
pub struct Text {
    sources: Vec<RuleSource>,
    options: LoadOptions,
    variables: Variables,
    /// Those that files have; among the options are others too.
    classes: Classes,
    /// What of the files around the rules could not be read.
    unread: Vec<String>,
}

impl Text {
    /// Adds the rules of standard input.
    ///
    /// # Errors
    /// It cannot be read, or is longer than a file may be.
    pub fn read_stdin(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(FILE_LEN_MAX + 1);
        input.read_to_end(&mut bytes).context("cannot read standard input")?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            bail!("standard input has more than {FILE_LEN_MAX} bytes");
        }
        self.sources.push(RuleSource { name: "-".to_owned(), text: text_of(&bytes) });
        Ok(())
    }

    /// Takes in the classes and thresholds that a suricata.yaml names, the rules' own over them.
    /// What of them cannot be read, and why: Suricata goes on without them. That its file of
    /// classes is not there matters to nobody: the usual ones are known.
    fn add_files_of(&mut self, yaml: &Yaml) -> Vec<String> {
        let mut classes = Classes::default();
        let read_classes = |path: PathBuf| classes::read(&text(&path)?, &path, &mut classes);
        let of_classes =
            yaml.file("classification-file").filter(|it| it.exists()).map(read_classes);
        classes.add(std::mem::take(&mut self.classes));
        self.options.classes.add(classes.clone());
        self.classes = classes;
        let of_filters = yaml.file("threshold-file").map(|path| {
            let (name, text) = (path.display().to_string(), text(&path)?);
            self.options.filters.push(RuleSource { name, text });
            Ok(())
        });
        let unread = [of_classes, of_filters].into_iter().flatten().filter_map(Result::err);
        unread.map(|it| format!("{it:#}")).collect()
    }

    /// Compiles otherwise; the classes that were read stay.
    pub fn set_options(&mut self, options: LoadOptions) {
        let mut classes = classes::built_in();
        classes.add(options.classes.clone());
        classes.add(self.classes.clone());
        let files = std::mem::take(&mut self.options.files);
        let kept = std::mem::take(&mut self.options.kept);
        let countries = self.options.countries.take();
        self.options = LoadOptions { classes, files, kept, countries, ..options };
    }

    /// Reads where addresses are, of a MaxMind database: all of it only if a rule asks.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn read_countries(&mut self, path: &Path) -> Result<()> {
        match self.sources.iter().any(|it| it.text.contains("geoip:")) {
            true => self.options.countries = Some(countries::read(path)?),
            false => countries::check(path)?,
        }
        Ok(())
    }

    /// Those of the `paths` it was read from that have no rule but in comments.
    pub fn without_rules<'a>(&self, paths: &'a [PathBuf]) -> Vec<&'a Path> {
        let is_rule = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#'));
        let full = self.sources.iter().filter(|it| it.text.lines().any(is_rule));
        let full: Vec<&Path> = full.map(|it| Path::new(&it.name)).collect();
        let is_without = |path: &&PathBuf| {
            // Sources are named as they are shown.
            let shown = path.display().to_string();
            !is_of_all_rules(path) && !full.iter().any(|it| it.starts_with(&shown))
        };
        paths.iter().filter(is_without).map(PathBuf::as_path).collect()
    }

    /// Reads the sets that rules keep (`state`) from their files in `folder`; a set whose file is
    /// not there is empty.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn read_kept(&mut self, folder: &Path) -> Result<()> {
        let of_rules = self.sources.iter().flat_map(|it| dataset::files(&it.text));
        let of_sets = self.variables.sets.iter().flat_map(|it| dataset::files_of_set(it));
        let kept: BTreeSet<NamedFile> =
            of_rules.chain(of_sets).filter(|it| it.place == FileLocation::Kept).collect();
        for NamedFile { name, .. } in kept {
            // Names that lead elsewhere have their rule refused.
            let path = folder.join(&name);
            if path.starts_with(folder) && path.exists() {
                self.options.kept.0.insert(name, text(&path)?);
            }
        }
        Ok(())
    }

    /// Rules, by their numbers, that are to tell what they would drop and to drop nothing; and
    /// those that are not to run.
    pub fn choose(&mut self, would_drop: BTreeSet<u32>, disabled: BTreeSet<u32>) {
        (self.options.would_drop, self.options.disabled) = (would_drop, disabled);
    }

    /// Whether no rule is to find a checksum wrong.
    pub fn ignore_checksums(&mut self, ignores: bool) {
        self.options.ignores_checksums = ignores;
    }

    /// A number that other files give another one: theirs count that stand there to be read, and
    /// not what rules themselves keep.
    pub fn digest(&self) -> u64 {
        let LoadOptions { classes, filters, files, reputation, .. } = &self.options;
        let LoadOptions { would_drop, disabled, .. } = &self.options;
        let mut hasher = DefaultHasher::new();
        (&self.sources, &self.variables, classes, filters).hash(&mut hasher);
        (files, reputation, would_drop, disabled).hash(&mut hasher);
        hasher.finish()
    }

    /// What to warn of in rules that were made of it, each with what to do.
    pub fn warnings(&self, rules: &RuleSet, report: &LoadReport) -> Vec<(String, &'static str)> {
        let unknown = classes::unknown(rules, &self.options.classes);
        let remedy = if report.enabled == 0 { ADD_RULES } else { SEE_REFUSED };
        let left_out = left_out(report).map(|it| (it, remedy));
        let sids: BTreeSet<u32> = rules.sids().collect();
        let unknown_sids = self.options.would_drop.difference(&sids);
        let unknown_sids =
            unknown_sids.map(|it| (format!("would_drop: no rule {it} runs"), CORRECT_SID));
        let unread = self.unread.iter().map(|it| (it.clone(), CORRECT_FILE));
        let unused = (!report.unused.is_empty()).then(|| {
            let count = report.unused.len();
            let what =
                format!("{count} lines of threshold.config, or sets of suricata.yaml, do nothing");
            (what, SEE_REFUSED)
        });
        let unread = unread.chain(unused);
        let (first, more) = report.idle.split_at(report.idle.len().min(IDLE_MAX));
        let more = (!more.is_empty()).then(|| format!("and {} more of that kind", more.len()));
        let idle = first.iter().cloned().chain(more).map(|it| (it, CORRECT_NAME));
        let unknown = unknown.map(|it| (it, ADD_CLASSES));
        let warnings = left_out.into_iter().chain(unread).chain(unknown_sids).chain(idle);
        warnings.chain(unknown).collect()
    }

    /// Makes rules of it that can run.
    ///
    /// # Errors
    /// The matcher has no memory.
    pub fn compile(&self) -> Result<Loaded> {
        let Self { sources, options, variables, .. } = self;
        RuleSet::load(sources, variables, options).context("the rules cannot be compiled")
    }
}

/// Reads all rules below `paths`: files as they are, folders with their `*.rules` in the order of
/// their names, and each folder's `classification.config` and `threshold.config`.
///
/// # Errors
/// A path cannot be read, or a file of classes has none.
pub fn read(paths: &[PathBuf], variables: Variables) -> Result<Text> {
    let mut options = LoadOptions { classes: classes::built_in(), ..LoadOptions::default() };
    let (mut sources, mut of_files) = (Vec::new(), Classes::default());
    let of_sets = variables.sets.iter().flat_map(|it| dataset::files_of_set(it));
    for named in of_sets.filter(|it| it.place == FileLocation::Beside) {
        let set = text(Path::new(&named.name))?;
        options.files.insert(named.name, set);
    }
    for file in files(paths)? {
        let text = text(&file)?;
        let is = |name: &str| file.file_name().is_some_and(|it| it == name);
        if is("classification.config") {
            classes::read(&text, &file, &mut of_files)?;
        } else if is("threshold.config") {
            options.filters.push(RuleSource { name: file.display().to_string(), text });
        } else {
            let named = dataset::files(&text);
            for named in named.into_iter().filter(|it| it.place == FileLocation::Beside) {
                // What is not there has its rule refused.
                let folder = file.parent().unwrap_or(Path::new("."));
                if let Ok(set) = self::text(&folder.join(&named.name)) {
                    options.files.insert(named.name, set);
                }
            }
            sources.push(RuleSource { name: file.display().to_string(), text });
        }
    }
    options.classes.add(of_files.clone());
    Ok(Text { sources, options, variables, classes: of_files, unread: Vec::new() })
}

/// Reads all rules below `paths` as [`read`] does, with the groups, reputations, classes and
/// thresholds of a suricata.yaml, and with `lists` of addresses.
///
/// # Errors
/// A file cannot be read, or is none of its kind.
pub fn read_with(paths: &[PathBuf], yaml: Option<&Path>, lists: &Lists) -> Result<Text> {
    let path = yaml.unwrap_or(Path::new("")).display();
    let unusable = || format!("{path} cannot be used");
    let yaml = yaml.map(Yaml::read).transpose()?;
    let of_yaml = yaml.as_ref().map(Yaml::variables).transpose().with_context(unusable)?;
    let mut variables = of_yaml.unwrap_or_default();
    let mut unread = addresses::read_lists(&mut variables, lists)?;
    let mut read = read(paths, variables)?;
    if let Some(yaml) = &yaml {
        let (reputation, warning) = yaml.reputation().with_context(unusable)?;
        read.options.reputation = reputation;
        unread.extend(warning);
        unread.extend(read.add_files_of(yaml));
    }
    read.unread = unread;
    Ok(read)
}

fn text(path: &Path) -> Result<String> {
    Ok(text_of(&file(path, FILE_LEN_MAX)?))
}

fn text_of(bytes: &[u8]) -> String {
    // Some editors begin a file with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // Messages of old rules are Latin-1: what is not UTF-8 matters to no keyword.
    String::from_utf8_lossy(bytes).into_owned()
}

/// All that a file has. A pipe or a device may never end, and is refused: who reads would not
/// come back, and take no other configuration.
///
/// # Errors
/// It cannot be read, is longer than `len_max`, or no file.
pub(crate) fn file(path: &Path, len_max: u64) -> Result<Vec<u8>> {
    let shown = path.display();
    let (file, len) = opened(path)?;
    if len > len_max {
        bail!("{shown} has {len} bytes, {len_max} at most");
    }
    // It may grow while it is read.
    let mut bytes = Vec::with_capacity(len as usize);
    file.take(len_max + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() as u64 > len_max {
        bail!("{shown} has grown beyond {len_max} bytes");
    }
    Ok(bytes)
}

/// A file that can be read, open, and its length.
///
/// # Errors
/// It is none, or cannot.
pub(crate) fn opened(path: &Path) -> Result<(fs::File, u64)> {
    let shown = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    if !metadata.is_file() {
        bail!("{shown} is not a file");
    }
    let file = fs::File::open(path).with_context(|| format!("cannot read {shown}"))?;
    Ok((file, metadata.len()))
}

/// What to do about lines that cannot be read.
const CORRECT_FILE: &str = "correct the file, or go on without them";

/// What to do about what is said in vain, of which so much is told, at most.
const CORRECT_NAME: &str = "correct what it names, or leave it out";
const IDLE_MAX: usize = 5;

/// What to do about rules that are to be tried and are not there.
const CORRECT_SID: &str = "correct the number, or leave it out";

/// What to do about classes that nobody knows.
const ADD_CLASSES: &str = "write them into a classification.config among the rule files";

/// What to do where no rule is.
const ADD_RULES: &str = "a folder's rules are in files that end in .rules";

/// Where it is told which rules do not run.
pub const SEE_REFUSED: &str = "`weir rules check PATH` names each, and the keyword that stops it";

/// What is said of rules that do not run, with the keywords that stop most; `None`: all run.
pub fn left_out(report: &LoadReport) -> Option<String> {
    /// Keywords that are named, at most.
    const NAMED_MAX: usize = 6;
    let (refused, enabled) = (report.refused.len(), report.enabled);
    if refused == 0 {
        let none = "no rule runs, since none is there: nothing is looked for";
        return (report.runnable == 0).then(|| none.to_owned());
    }
    let mut by_keyword: Vec<_> = report.by_keyword().into_iter().collect();
    by_keyword.sort_by_key(|(_, count)| Reverse(*count));
    let named = by_keyword.iter().take(NAMED_MAX).map(|(word, count)| format!("{count} {word}"));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if by_keyword.len() > NAMED_MAX {
        named += &format!(", {} others", by_keyword.len() - NAMED_MAX);
    }
    let none = if report.runnable == 0 { "no rule runs: nothing is looked for; " } else { "" };
    let first = &report.refused[0];
    let first = format!("{}:{}: {}: {}", first.source, first.line, first.keyword, first.reason);
    Some(format!(
        "{none}{refused} of {enabled} rules do not run, by keyword: {named}; the first: {first}"
    ))
}

/// The files to read: those named, and those of the folders named, one level and deeper.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Found::default();
    for path in paths {
        if path.is_dir() {
            found.folder(path, 0)?;
        } else {
            found.files.push(path.clone());
        }
    }
    Ok(found.files)
}

/// Whether it is a file that tells of all rules, and has none.
fn is_of_all_rules(path: &Path) -> bool {
    let names = ["classification.config", "threshold.config"];
    path.file_name().is_some_and(|it| names.iter().any(|name| it == *name))
}

/// Whether a file in a folder is to be read. The locks of Emacs are links that lead nowhere.
fn is_wanted(path: &Path) -> bool {
    let is_lock = path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b".#"));
    let is_of_rules = path.extension().is_some_and(|it| it == "rules");
    (is_of_rules || is_of_all_rules(path)) && !is_lock
}

/// What was found so far.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    folders: usize,
    /// Folders by what their names lead to: each is read once, whatever links there are.
    known: BTreeSet<PathBuf>,
}

impl Found {
    fn folder(&mut self, path: &Path, depth: usize) -> Result<()> {
        const DEPTH_MAX: usize = 8;
        let shown = path.display();
        let real = fs::canonicalize(path).with_context(|| format!("cannot read {shown}"))?;
        if !self.known.insert(real) {
            return Ok(());
        }
        self.folders += 1;
        if self.folders > FOLDERS_MAX {
            bail!("{shown}: more than {FOLDERS_MAX} folders");
        }
        let entries = fs::read_dir(path).with_context(|| format!("cannot read {shown}"))?;
        let mut inside: Vec<PathBuf> = entries.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
        inside.sort();
        for path in inside {
            if path.is_dir() {
                if depth < DEPTH_MAX {
                    self.folder(&path, depth + 1)?;
                }
            } else if is_wanted(&path) {
                // What is no regular file is refused by who reads it, as one that was named is.
                self.files.push(path);
            }
            if self.files.len() > FILES_MAX {
                bail!("{shown} has more than {FILES_MAX} rule files");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_a_device_is_no_rule_file_and_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        for path in [pipe, "/dev/zero".into()] {
            let shown = path.display().to_string();
            let refused = read(&[path], Variables::default()).unwrap_err();
            assert_eq!(refused.to_string(), format!("{shown} is not a file"));
        }
        // Nor is one in a folder, which would be missed otherwise; a link to nowhere likewise.
        for (link, target, why) in
            [("a.rules", "/no/such", "cannot read "), ("b.rules", "../pipe", " is not a file")]
        {
            let rules = tempfile::tempdir_in(folder.path()).unwrap();
            std::os::unix::fs::symlink(target, rules.path().join(link)).unwrap();
            let refused = read(&[rules.path().to_owned()], Variables::default()).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused:#}");
            fs::rename(rules.path().join(link), rules.path().join(".#c.rules")).unwrap();
            read(&[rules.path().to_owned()], Variables::default()).unwrap();
        }
        // A rule that names one is refused, and the others run.
        let rules = folder.path().join("one.rules");
        let rule = |asks: &str, sid| {
            format!("alert dns any any -> any any (dns.query; {asks}; sid:{sid};)\n")
        };
        let text = rule("dataset:isset,x,type string,load pipe", 1) + &rule("content:\"x\"", 2);
        fs::write(&rules, text).unwrap();
        let report = read(&[rules], Variables::default()).unwrap().compile().unwrap().report;
        assert_eq!((report.enabled, report.runnable), (2, 1));
        let words = left_out(&report).unwrap();
        assert!(words.starts_with("1 of 2 rules do not run, by keyword: 1 dataset; the first: "));
        assert!(left_out(&LoadReport::default()).unwrap().starts_with("no rule runs"));
    }

    #[test]
    fn classes_have_a_severity_by_themselves_and_those_that_nobody_knows_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let rule = |class: &str, sid: u32| {
            format!("alert ip any any -> any any (classtype:{class}; sid:{sid};)\n")
        };
        let names = ["attempted-admin", "nobodys", "mine"];
        let text: String = names.iter().zip(1..).map(|(name, sid)| rule(name, sid)).collect();
        fs::write(folder.path().join("one.rules"), text).unwrap();
        let classes = folder.path().join("classification.config");
        fs::write(&classes, "config classification: mine,My own,2\n").unwrap();
        let text = read(&[folder.path().to_owned()], Variables::default()).unwrap();
        let Loaded { rules, report } = text.compile().unwrap();
        let rule = |index| rules.rule(weir_detect::RuleIndex(index));
        let severities = [0, 1, 2].map(|it| (rule(it).class.as_str(), rule(it).priority));
        for expected in [("attempted-admin", 1), ("nobodys", 3), ("mine", 2)] {
            assert!(severities.contains(&expected), "{severities:?}");
        }
        let warnings = text.warnings(&rules, &report);
        let words: Vec<_> = warnings.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(words, ["classtype without a class, so that severity is 3: nobodys"]);
        fs::write(&classes, "rubbish").unwrap();
        assert!(read(&[folder.path().to_owned()], Variables::default()).is_err());
    }

    #[test]
    fn a_suricata_yaml_names_files_of_classes_and_thresholds() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("one.rules", "alert ip any any -> any any (classtype:mine; sid:1;)\n");
        write("mine.config", "config classification: mine,My own,1\n");
        write("quiet.config", "suppress gen_id 1, sig_id 1\n");
        write("a.yaml", "classification-file: mine.config\nthreshold-file: quiet.config\n");
        write("b.yaml", "classification-file: none.config\nthreshold-file: none.config\n");
        let read = |yaml: &str| {
            let yaml = folder.path().join(yaml);
            read_with(&[folder.path().join("one.rules")], Some(&yaml), &Lists::default()).unwrap()
        };
        let text = read("a.yaml");
        let loaded = text.compile().unwrap();
        assert_eq!(loaded.rules.rule(weir_detect::RuleIndex(0)).priority, 1);
        let filters: Vec<&str> = text.options.filters.iter().map(|it| it.text.trim()).collect();
        assert_eq!(filters, ["suppress gen_id 1, sig_id 1"]);
        assert!(text.warnings(&loaded.rules, &loaded.report).is_empty());
        let text = read("b.yaml");
        let loaded = text.compile().unwrap();
        let warnings = text.warnings(&loaded.rules, &loaded.report);
        let words: Vec<_> = warnings.iter().map(|it| it.0.as_str()).collect();
        assert!(words[0].starts_with("cannot read "), "{words:?}");
        assert!(words[1].ends_with("severity is 3: mine"), "{words:?}");
    }

    #[test]
    fn a_folder_is_read_once_whatever_links_lead_to_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..8 {
            std::os::unix::fs::symlink(".", folder.path().join(name.to_string())).unwrap();
        }
        fs::write(folder.path().join("one.rules"), "alert ip any any -> any any (sid:1;)").unwrap();
        let text = read(&[folder.path().to_owned()], Variables::default()).unwrap();
        let report = text.compile().unwrap().report;
        assert_eq!((report.enabled, report.runnable), (1, 1));
        for name in 0..1000 {
            fs::create_dir(folder.path().join(format!("folder-{name}"))).unwrap();
        }
        let refused = read(&[folder.path().to_owned()], Variables::default()).unwrap_err();
        assert!(refused.to_string().ends_with("more than 1000 folders"), "{refused:#}");
    }
}
