//! The processors' frequency governor, as a step of a trial: set for it, and put back after it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Where Linux has its processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// All processors by one governor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Governor {
    /// As the kernel calls it: `performance`, `powersave`.
    name: String,
}

/// Whether this machine has governors: virtual machines mostly have none.
pub(super) fn is_there() -> bool {
    !files(Path::new(PROCESSORS)).is_empty()
}

impl Governor {
    pub(super) fn require(&self) -> Result<()> {
        for file in files(Path::new(PROCESSORS)) {
            let known = file.with_file_name("scaling_available_governors");
            let known = fs::read_to_string(known).unwrap_or_default();
            let is_known = known.split_whitespace().any(|it| it == self.name);
            ensure!(is_known, "no governor is called {}; there are {}", self.name, known.trim());
        }
        Ok(())
    }

    /// Sets it, until what is returned is dropped.
    pub(super) fn set(&self) -> Result<Changed> {
        self.set_in(Path::new(PROCESSORS))
    }

    fn set_in(&self, processors: &Path) -> Result<Changed> {
        let mut changed = Changed(Vec::new());
        for file in files(processors) {
            let before = fs::read_to_string(&file)?;
            fs::write(&file, &self.name)
                .with_context(|| format!("cannot set {} to {}", file.display(), self.name))?;
            changed.0.push((file, before));
        }
        Ok(changed)
    }
}

/// Governors as they were, put back when this is dropped.
#[derive(Debug)]
pub(super) struct Changed(Vec<(PathBuf, String)>);

impl Drop for Changed {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            let _ = fs::write(file, before.trim());
        }
    }
}

fn files(processors: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(processors).into_iter().flatten().flatten();
    let files = entries.map(|it| it.path().join("cpufreq/scaling_governor"));
    files.filter(|it| it.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processors_get_it_and_are_as_before_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            |number: usize| folder.path().join(format!("cpu{number}/cpufreq/scaling_governor"));
        for (number, before) in ["ondemand\n", "powersave\n"].iter().enumerate() {
            fs::create_dir_all(file(number).parent().unwrap()).unwrap();
            fs::write(file(number), before).unwrap();
        }
        fs::create_dir(folder.path().join("cpuidle")).unwrap();
        let said = || [0, 1].map(|it| fs::read_to_string(file(it)).unwrap().trim().to_owned());
        let changed = Governor { name: "performance".into() }.set_in(folder.path()).unwrap();
        assert_eq!(said(), ["performance", "performance"]);
        drop(changed);
        assert_eq!(said(), ["ondemand", "powersave"]);
    }
}
