//! Keys that a copy of this machine may use too: refused from the moment that the machine is known
//! to be a copy, or to have gone back to a snapshot, for as long as the directory lives.

use std::collections::BTreeSet;
use std::io::Write;

use weir_engine::esp::sa::Fingerprint;

use super::{LostState, StateError, StateStore};

impl StateStore {
    /// Trusts no key any more that this directory knows, whether it is in use or was; waits for
    /// the disk. How many those are.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn distrust(&mut self) -> Result<usize, StateError> {
        let of_ledger = self.used.iter().chain(self.held.keys());
        let of_ledger = of_ledger.filter_map(|name| {
            name.strip_prefix("seal-").or_else(|| name.strip_prefix("open-")).map(str::to_owned)
        });
        let mut keys: BTreeSet<String> = of_ledger.collect();
        keys.extend(self.notes.keys().map(|key| key.to_string()));
        let lines = keys.iter().map(|key| format!("cloned-{key}\n"));
        let lines: String = lines.filter(|line| !self.used.contains(line.trim_end())).collect();
        let noted = self.ledger.write_all(lines.as_bytes());
        let noted = noted.and_then(|()| self.ledger.sync_all());
        self.done(&self.directory, noted)?;
        self.used.extend(lines.lines().map(str::to_owned));
        Ok(keys.len())
    }

    /// # Errors
    /// [`StateError::Cloned`].
    pub(super) fn refuse_cloned(&self, key: Fingerprint) -> Result<(), StateError> {
        if !self.used.contains(&format!("cloned-{key}")) {
            return Ok(());
        }
        if self.lost == LostState::Refuse {
            return Err(StateError::Cloned(key));
        }
        tracing::error!(%key, "used on a machine that was cloned, by request: nonces may repeat");
        Ok(())
    }
}
