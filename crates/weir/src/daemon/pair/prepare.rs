//! A plan made ready for its worker, beside the data path: associations built, sequence numbers
//! reserved. Whatever can be refused or waits for a disk is done here; a worker only swaps.
//!
//! ```text
//!   plans --prepare--> all prepared? --offer--> every worker agrees? --commit--> in force
//!               no: nothing has changed       no: all discard, nothing has changed
//! ```

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use weir_engine::esp::open::{OpeningSa, OpeningState};
use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::pipeline::Associations;
use weir_engine::policy::Policy;

use crate::config::settings::Evidence;
use crate::daemon::keys::state::{Reserver, StateFile};
use crate::daemon::pair::kernel_esp::KernelPlan;
use crate::daemon::pair::mirror::{self, Mirror};
use crate::daemon::pair::plan::{AssociationPlan, PairPlan};

/// What an association was made from, without its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    fingerprint: Fingerprint,
    spi: Spi,
    extended_sequence: bool,
    replay_window: u32,
}

impl From<&SaParameters> for Terms {
    fn from(parameters: &SaParameters) -> Self {
        Self::of(parameters.fingerprint(), parameters)
    }
}

impl Terms {
    /// Those of `parameters`, whose key has this name.
    pub fn of(fingerprint: Fingerprint, parameters: &SaParameters) -> Self {
        Self {
            fingerprint,
            spi: parameters.spi,
            extended_sequence: parameters.extended_sequence,
            replay_window: parameters.replay_window,
        }
    }

    /// Of which key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// A peer's two associations, as a worker runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    seal: Terms,
    open: Terms,
}

impl Running {
    /// Of which keys they are: to the peer, and from it.
    pub fn fingerprints(&self) -> [Fingerprint; 2] {
        [self.seal.fingerprint, self.open.fingerprint]
    }
}

/// An opening association's file, and the memory to write it from.
#[derive(Debug)]
pub struct ReplayFile {
    /// Whose it is.
    pub fingerprint: Fingerprint,
    /// Where accepted numbers go.
    pub file: StateFile,
    /// They, as the engine tells them.
    pub state: OpeningState,
    /// They, as the file has them.
    pub record: Vec<u8>,
}

/// Where a peer's accepted numbers are kept from now on.
#[derive(Debug)]
pub enum NextReplayFile {
    /// Where they are kept already: the association goes on.
    Running(Fingerprint),
    /// The association is new.
    New(ReplayFile),
}

impl NextReplayFile {
    /// The file of a new association; of one that goes on, its worker has it.
    pub fn into_new(self) -> Option<ReplayFile> {
        match self {
            Self::New(file) => Some(file),
            Self::Running(_) => None,
        }
    }
}

/// A plan that needs nothing more to be in force.
#[derive(Debug)]
pub struct Prepared {
    /// What decides about packets.
    pub policy: Policy,
    /// Those that do not run yet.
    pub associations: Associations,
    /// For each peer of the policy.
    pub replay_files: Vec<NextReplayFile>,
    /// What will run, for each peer of the policy.
    pub running: Vec<Running>,
    /// Peers whose ESP the kernel does: for a start alone, a reload leaves them as they are.
    pub kernel: Vec<KernelPlan>,
    /// Who watches from now on; `None`: who does already.
    pub bystanders: Option<NextBystanders>,
}

/// Who watches a worker's packets under a plan.
#[derive(Default)]
pub struct NextBystanders {
    /// Who gets copies.
    pub mirrors: Vec<NextMirror>,
    /// What the worker keeps of the last packets.
    pub evidence: Option<Evidence>,
}

impl std::fmt::Debug for NextBystanders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextBystanders").field("evidence", &self.evidence).finish_non_exhaustive()
    }
}

/// A mirror under a plan.
pub enum NextMirror {
    /// A new one, open.
    New(Box<Mirror>),
    /// The one that was made from the same settings, with its counters.
    Running(mirror::Settings),
}

/// Builds what `plan` needs beyond what is `running`; an association that both name goes on with
/// its numbers. Waits for the disk.
///
/// # Errors
/// A running association is to change although its key stays, or the disk refuses.
pub fn prepare(plan: PairPlan, running: &[Running], reserver: &Reserver) -> Result<Prepared> {
    let PairPlan { policy, associations: plans, tags, kernel } = plan;
    let mut prepared = Prepared {
        policy,
        associations: Associations { tags, ..Associations::default() },
        replay_files: Vec::new(),
        running: Vec::new(),
        kernel,
        bystanders: None,
    };
    let by_key = |terms: fn(&Running) -> Terms| -> HashMap<Fingerprint, Terms> {
        running.iter().map(|it| (terms(it).fingerprint, terms(it))).collect()
    };
    let running = (by_key(|it| it.seal), by_key(|it| it.open));
    for plan in plans {
        let peer = plan.peer.clone();
        add(&mut prepared, plan, &running).with_context(|| format!("peer {peer}"))?;
    }
    let sealing = &mut prepared.associations.sealing;
    let wanted: Vec<_> = sealing.iter().map(SealingSa::reservation_needed).collect();
    reserver.wait(wanted.iter().flatten().copied().collect())?;
    for (association, wanted) in sealing.iter_mut().zip(&wanted) {
        if let Some(granted) = wanted {
            association.extend_reservation(granted);
        }
    }
    Ok(prepared)
}

fn add(
    prepared: &mut Prepared,
    plan: AssociationPlan,
    (sealing_now, opening_now): &(HashMap<Fingerprint, Terms>, HashMap<Fingerprint, Terms>),
) -> Result<()> {
    let wanted = Running { seal: Terms::from(&plan.seal), open: Terms::from(&plan.open) };
    if !goes_on(wanted.seal, sealing_now)? {
        let sealing = SealingSa::new(&plan.seal, plan.sealing_state.as_ref())?;
        prepared.associations.sealing.push(sealing);
    }
    let fingerprint = wanted.open.fingerprint;
    if goes_on(wanted.open, opening_now)? {
        prepared.replay_files.push(NextReplayFile::Running(fingerprint));
    } else {
        let opening = OpeningSa::new(&plan.open, plan.opening_state.as_ref())?;
        let (file, state) = (plan.opening_file, opening.empty_state());
        prepared.replay_files.push(NextReplayFile::New(ReplayFile {
            fingerprint,
            file,
            state,
            record: Vec::new(),
        }));
        prepared.associations.opening.push(opening);
    }
    prepared.running.push(wanted);
    Ok(())
}

/// Whether the association runs already. Its numbers cannot move to another one under the same key
/// while it runs: a number would be used, or accepted, twice.
fn goes_on(wanted: Terms, running: &HashMap<Fingerprint, Terms>) -> Result<bool> {
    match running.get(&wanted.fingerprint) {
        None => Ok(false),
        Some(it) if *it == wanted => Ok(true),
        Some(_) => bail!(
            "the SPI, the numbering or the replay window of a running association changed; make a \
             new key for it (`weir keys generate`), or restart"
        ),
    }
}

/// Refuses keys that would move from one worker to another while they are in use. `running` is in
/// the order of `plans`.
///
/// # Errors
/// Which.
pub fn refuse_moved_keys(plans: &[&PairPlan], running: &[&[Running]]) -> Result<()> {
    for (pair, plan) in plans.iter().enumerate() {
        let others = running.iter().enumerate().filter(|(other, _)| *other != pair);
        let others: Vec<&Running> = others.flat_map(|(_, it)| it.iter()).collect();
        let sealing: HashSet<_> = others.iter().map(|it| it.seal.fingerprint).collect();
        let opening: HashSet<_> = others.iter().map(|it| it.open.fingerprint).collect();
        for peer in &plan.associations {
            let (seal, open) = (peer.seal.fingerprint(), peer.open.fingerprint());
            if sealing.contains(&seal) || opening.contains(&open) {
                bail!(
                    "peer {}: its key is in use by another pair, or another worker; make a new \
                     one (`weir keys generate`), or restart",
                    peer.peer
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::keys::state::{LostState, StateStore};

    /// A plan of one peer with keys made of these bytes.
    fn plan(store: &mut StateStore, seal: u8, open: u8, replay_window: u32) -> PairPlan {
        let parameters = |spi: u32, byte: u8| SaParameters {
            replay_window,
            ..SaParameters::new(Spi::new(spi).unwrap(), &[byte; 36]).unwrap()
        };
        let (seal, open) = (parameters(0x1001, seal), parameters(0x1002, open));
        let (opening_file, opening_state) = store.opening(open.fingerprint()).unwrap();
        let sealing_state = store.sealing(seal.fingerprint()).unwrap();
        store.settle().unwrap();
        let peer = "b".to_owned();
        let associations =
            vec![AssociationPlan { peer, seal, sealing_state, open, opening_state, opening_file }];
        let policy = Policy::watch(1, 1500);
        PairPlan { policy, associations, tags: Vec::new(), kernel: Vec::new() }
    }

    fn counts(prepared: &Prepared) -> (usize, usize) {
        (prepared.associations.sealing.len(), prepared.associations.opening.len())
    }

    #[test]
    fn what_runs_goes_on_and_only_what_is_new_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap();
        let reserver = store.reserver();
        let first = prepare(plan(&mut store, 1, 2, 1024), &[], &reserver).unwrap();
        assert_eq!(counts(&first), (1, 1));
        let again = prepare(plan(&mut store, 1, 2, 1024), &first.running, &reserver).unwrap();
        assert_eq!(counts(&again), (0, 0));
        assert!(matches!(again.replay_files[..], [NextReplayFile::Running(_)]));
        let new_seal = prepare(plan(&mut store, 3, 2, 1024), &first.running, &reserver).unwrap();
        assert_eq!(counts(&new_seal), (1, 0));
        let new_open = prepare(plan(&mut store, 1, 4, 1024), &first.running, &reserver).unwrap();
        assert_eq!(counts(&new_open), (0, 1));
        assert!(matches!(new_open.replay_files[..], [NextReplayFile::New(_)]));
    }

    #[test]
    fn other_terms_under_a_running_key_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap();
        let reserver = store.reserver();
        let first = prepare(plan(&mut store, 1, 2, 1024), &[], &reserver).unwrap();
        let error = prepare(plan(&mut store, 1, 2, 2048), &first.running, &reserver).unwrap_err();
        assert!(format!("{error:#}").contains("peer b: the SPI"), "{error:#}");
    }

    #[test]
    fn a_key_does_not_move_between_pairs_while_it_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap();
        let reserver = store.reserver();
        let first = prepare(plan(&mut store, 1, 2, 1024), &[], &reserver).unwrap();
        let empty = || PairPlan {
            policy: Policy::watch(1, 1500),
            associations: Vec::new(),
            tags: Vec::new(),
            kernel: Vec::new(),
        };
        let stays = [plan(&mut store, 1, 2, 1024), empty()];
        refuse_moved_keys(&stays.each_ref(), &[&first.running, &[]]).unwrap();
        let moves = [empty(), plan(&mut store, 1, 2, 1024)];
        let error = refuse_moved_keys(&moves.each_ref(), &[&first.running, &[]]).unwrap_err();
        assert!(error.to_string().contains("in use by another pair"), "{error}");
    }
}
