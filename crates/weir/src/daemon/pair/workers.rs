//! The workers of one pair of ports: one, or several that share its flows (docs/adr/0025).
//!
//! ```text
//!   host port --> steering --+-> worker 0: engine, relay, TAP, handshakes --+--> wire port
//!                            +-> worker 1: engine, relay ------------------+
//!                            +-> ...   each tells the others where hosts and neighbours are
//!   control thread: guard, mirrors' ports and kernel clones, steering (`pair_control`)
//! ```
//!
//! To the supervisor they are one: a plan goes to all of them or to none, and their counters are
//! summed here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use weir_engine::esp::sa::Fingerprint;
use weir_engine::pipeline::Left;
use weir_port::{Guard, GuardMode, Steering, SteeringOptions};
use weir_store::clock;
use weir_store::evidence::Snapshot;

use crate::api::dto::PairSnapshot;
use crate::config::settings::{Driver, OnFailure, Pair};
use crate::daemon::control::openvpn;
use crate::daemon::control::show;
use crate::daemon::keys::state::StateStore;
use crate::daemon::pair::control::{LookedAfter, PairControl, Pulse};
use crate::daemon::pair::exchange::Exchange;
use crate::daemon::pair::fast_path::{self, Begun, FastPathControl};
use crate::daemon::pair::gate::SharedGate;
use crate::daemon::pair::kernel_esp::{KernelEsp, KernelPlan, ToKernel};
use crate::daemon::pair::mirror::{self, MirrorControl};
use crate::daemon::pair::plan::PairPlan;
use crate::daemon::pair::ports;
use crate::daemon::pair::prepare::{Prepared, Running};
use crate::daemon::pair::relay::Ports;
use crate::daemon::pair::sharing::{Sharing, SteeredPrefix};
use crate::daemon::pair::worker::{
    AssociationChange, WorkerCommand, WorkerHandle, WorkerSetup, WorkerUsage,
};

/// What a worker is made of: its ports, and what of the pair it alone looks after.
pub struct WorkerParts {
    /// 0 to 15.
    pub number: usize,
    /// Its ports.
    pub ports: Ports,
    /// Its signs of life for the control thread.
    pub pulse: Pulse,
    /// The way to who looks after peers whose ESP the kernel does.
    pub kernel: Option<ToKernel>,
    /// The keys of their associations.
    pub by_kernel: Vec<[Fingerprint; 2]>,
    /// The fast path.
    pub fast_path: Option<FastPathControl>,
    /// Why there is none.
    pub why_not: Option<String>,
    /// The other workers; `None` where there are none.
    pub exchange: Option<Exchange>,
    /// What drops frames before its ports receive them.
    pub gate: Option<SharedGate>,
}

/// The running workers of a pair.
#[derive(Debug)]
pub struct PairWorkers {
    /// The pair's name.
    pub name: String,
    /// At least one.
    workers: Vec<WorkerHandle>,
    /// Dropped behind the workers.
    control: PairControl,
    /// To begin with the plan that the workers hold, and the settings of all that it has.
    next_mirrors: Option<(Vec<MirrorControl>, Vec<mirror::Settings>)>,
    /// `None` with one worker.
    sharing: Option<Arc<Mutex<Sharing>>>,
}

impl PairWorkers {
    /// Shuts the pair's ports for everybody else, opens them for each of `setups`, a worker's, has
    /// the control thread look after them and after `mirrors`, and starts to move frames.
    ///
    /// # Errors
    /// A port cannot be opened, or a plan cannot be carried out.
    pub fn start(
        mut setups: Vec<WorkerSetup>,
        mirrors: Vec<MirrorControl>,
        store: &mut StateStore,
    ) -> Result<Self> {
        let first = setups.first_mut().context("a pair has a worker")?;
        let pair = first.pair.clone();
        let (mut parts, guard, sharing, kernel) = match pair.workers {
            1 => {
                let (parts, guard, kernel) = parts_of_one(first, store)?;
                (vec![parts], guard, None, kernel)
            }
            _ => {
                let (parts, guard, steering) = parts_of_several(first)?;
                let sharing = Sharing::new(steering, &pair)?;
                (parts, guard, Some(Arc::new(Mutex::new(sharing))), None)
            }
        };
        let pulses = parts.iter().map(|parts| Arc::clone(&parts.pulse)).collect();
        let kernel = kernel.map(|esp| (esp, store.reserver()));
        let sharing_of_control = sharing.clone();
        let looked_after = LookedAfter { guard, mirrors, pulses, sharing: sharing_of_control };
        let (control, to_kernel) = PairControl::start(&pair, looked_after, kernel)?;
        parts[0].kernel = to_kernel;
        let (name, workers, next_mirrors) = (pair.name, Vec::new(), None);
        let mut made = Self { name, workers, control, next_mirrors, sharing };
        for (setup, parts) in setups.into_iter().zip(parts) {
            made.workers.push(WorkerHandle::start(setup, parts)?);
        }
        Ok(made)
    }

    /// Who tells the steering how many workers share a peer's flows; `None` with one worker.
    pub fn sharing(&self) -> Option<Arc<Mutex<Sharing>>> {
        self.sharing.clone()
    }

    /// What the associations of worker 0 did, which has those of front ends.
    ///
    /// # Errors
    /// It does not answer.
    pub fn usage(&self) -> Result<WorkerUsage> {
        self.workers[0].usage()
    }

    /// The associations that each worker runs.
    pub fn running(&self) -> impl Iterator<Item = &[Running]> {
        self.workers.iter().map(WorkerHandle::running)
    }

    /// Whether the kernel has other keys than `plans` want.
    pub fn has_other_kernel_keys(&self, plans: &[PairPlan]) -> bool {
        self.workers.iter().zip(plans).any(|(worker, plan)| worker.has_other_kernel_keys(plan))
    }

    /// Has each hold its plan, as [`WorkerHandle::offer`].
    ///
    /// # Errors
    /// One cannot take it, or does not answer; then tell all [`PairWorkers::discard`].
    pub fn offer(&mut self, plans: Vec<Prepared>) -> Result<()> {
        self.workers.iter_mut().zip(plans).try_for_each(|(worker, plan)| worker.offer(plan))
    }

    /// Holds what else a new configuration wants of the pair until [`PairWorkers::commit`]: its
    /// `mirrors`, of which `new` ones begin then; and the steering makes room for its peers.
    ///
    /// # Errors
    /// The steering has no room; then tell all [`PairWorkers::discard`].
    pub fn offer_rest(
        &mut self,
        pair: &Pair,
        mirrors: Vec<mirror::Settings>,
        new: Vec<MirrorControl>,
    ) -> Result<()> {
        self.next_mirrors = Some((new, mirrors));
        self.steering().map_or(Ok(()), |mut steering| steering.prepare(pair))
    }

    /// Has all forget the plans that they hold.
    pub fn discard(&mut self) {
        self.next_mirrors = None;
        for worker in &self.workers {
            worker.tell(WorkerCommand::Discard);
        }
        if let Some(mut steering) = self.steering() {
            steering.discard();
        }
    }

    /// Puts the plans that they hold in force. Returns how far the associations went that worker 0
    /// has no more.
    ///
    /// # Errors
    /// A worker has ended, which takes the gateway with it: half a configuration never stays.
    pub fn commit(&mut self) -> Result<Left> {
        let (new_mirrors, mirrors) = self.next_mirrors.take().unzip();
        // What is not to be copied any longer is not copied under the new policy either.
        let kept = mirrors.map_or(Ok(()), |it| self.control.keep_mirrors(it));
        let answers: Vec<_> = self.workers.iter_mut().map(WorkerHandle::commit).collect();
        let left: Result<Vec<Left>> = answers.iter().map(WorkerHandle::settled).collect();
        if let Some(mut steering) = self.steering() {
            steering.commit();
        }
        kept.and_then(|()| new_mirrors.map_or(Ok(()), |it| self.control.add_mirrors(it)))?;
        left?.into_iter().next().context("a pair has a worker")
    }

    /// Has worker 0, which alone has those of front ends, give peers other associations.
    ///
    /// # Errors
    /// It cannot, and nothing has changed; or it does not answer.
    pub fn change(&self, changes: Vec<AssociationChange>) -> Result<Left> {
        self.workers[0].change(changes)
    }

    /// Has worker 0 take the packets of front ends: flows to these prefixes, ESP of these SPIs.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn steer_front_end(&self, reaches: Vec<SteeredPrefix>, spis: BTreeSet<u32>) -> Result<()> {
        self.steering().map_or(Ok(()), |mut it| it.steer_front_end(reaches, spis))
    }

    fn steering(&self) -> Option<MutexGuard<'_, Sharing>> {
        self.sharing.as_ref().map(|it| it.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The counters that they published last, all of them together.
    ///
    /// # Errors
    /// One does not publish any more.
    pub fn snapshot(&self) -> Result<PairSnapshot> {
        let now = clock::now();
        let of_each = self.workers.iter().map(|it| Ok(it.latest()?.snapshot(now)));
        let mut joined = PairSnapshot::join(of_each.collect::<Result<Vec<_>>>()?);
        show::add_control(&mut joined, &self.control.report());
        Ok(joined)
    }

    /// Whether all have published what was so after `asked`.
    pub fn have_published_since(&self, asked: Instant) -> bool {
        let is_newer = |it: &WorkerHandle| it.latest().is_ok_and(|it| it.is_newer_than(asked));
        self.workers.iter().all(is_newer) && self.control.report().taken > asked
    }

    /// What the evidence ring of each worker holds.
    ///
    /// # Errors
    /// One does not answer.
    pub fn evidence(&self) -> Result<Vec<Snapshot>> {
        self.workers.iter().map(|it| Ok(it.evidence()?.unwrap_or_default())).collect()
    }

    /// Has all end, after the batch at hand.
    pub fn stop(&self) {
        for worker in &self.workers {
            worker.tell(WorkerCommand::Stop);
        }
    }

    /// Whether one ended, which it does by itself only when a port is lost.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().any(WorkerHandle::is_finished) || self.control.is_finished()
    }

    /// Has all end, and waits for it.
    ///
    /// # Errors
    /// Why the first of them did that failed.
    pub fn join(self) -> Result<()> {
        self.stop();
        let ends: Vec<_> = self.workers.into_iter().map(WorkerHandle::join).collect();
        ends.into_iter().chain([self.control.join()]).collect()
    }
}

/// The parts of a worker that is alone.
fn parts_of_one(
    setup: &mut WorkerSetup,
    store: &mut StateStore,
) -> Result<(WorkerParts, Guard, Option<KernelEsp>)> {
    let (pair, policy) = (&setup.pair, &setup.plan.policy);
    let plans = std::mem::take(&mut setup.plan.kernel);
    let by_kernel = plans.iter().filter_map(KernelPlan::fingerprints).collect();
    let mut kernel = KernelEsp::open(pair, policy, plans)?;
    let has_interfaces = kernel.is_some() || !openvpn::devices(pair).is_empty();
    let Begun { mut guard, mut fast_paths, why_not, gate } = match has_interfaces {
        true => fast_path::begin_with_interfaces(pair, kernel.as_ref())?,
        false => fast_path::begin(pair, &setup.limits, mode(setup.on_failure))?,
    };
    let fast_path = fast_paths.pop();
    let mut ports = ports::open(pair, policy, fast_path.as_ref(), gate.as_ref())?;
    if let Some(kernel) = &mut kernel {
        ports.kernel = kernel.start(&mut guard, store)?;
    }
    // Behind the kernel's, as their places in the policy are.
    ports.kernel.extend(openvpn::open_ports(pair)?);
    let parts = WorkerParts {
        number: 0,
        ports,
        pulse: Pulse::default(),
        kernel: None,
        by_kernel,
        fast_path,
        why_not,
        exchange: None,
        gate,
    };
    Ok((parts, guard, kernel))
}

/// The parts of several workers, their guard, and what shares frames out among them.
fn parts_of_several(setup: &WorkerSetup) -> Result<(Vec<WorkerParts>, Guard, Steering)> {
    let (pair, policy) = (&setup.pair, &setup.plan.policy);
    let begun = fast_path::begin(pair, &setup.limits, mode(setup.on_failure))?;
    let Begun { guard, fast_paths, why_not, gate } = begun;
    let own = policy.own.iter().flat_map(|own| own.addresses.iter().map(|(address, _)| *address));
    let mut steering = Steering::load(&SteeringOptions {
        workers: pair.workers,
        keying_port: policy.keying_port,
        own: own.collect(),
        has_front_ends: pair.xfrm,
        tunnel_ports: policy.tunnels.by_destination(),
        bypasses_kernel: pair.driver == Driver::Xdp,
    })?;
    let ports = ports::open_several(pair, policy, &mut steering, &fast_paths, gate.as_ref())?;
    let mut fast_paths = fast_paths.into_iter();
    let ends = Exchange::of(pair.workers, steering.flow_workers()?)?;
    let parts = ports.into_iter().zip(ends).enumerate();
    let parts = parts.map(|(number, (ports, exchange))| WorkerParts {
        number,
        ports,
        pulse: Pulse::default(),
        kernel: None,
        by_kernel: Vec::new(),
        fast_path: fast_paths.next(),
        why_not: why_not.clone(),
        exchange: Some(exchange),
        gate: gate.clone(),
    });
    Ok((parts.collect(), guard, steering))
}

fn mode(on_failure: OnFailure) -> GuardMode {
    match on_failure {
        OnFailure::Closed => GuardMode::Closed,
        OnFailure::Open => GuardMode::OpenOnFailure,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;
    use std::thread;

    use super::*;
    use crate::daemon::pair::control::Command;

    #[test]
    fn mirrors_that_end_are_gone_before_the_new_policy_holds_and_new_ones_come_behind_it() {
        let (control, to_control) = PairControl::played();
        let (worker, to_worker) = WorkerHandle::played();
        let mut pair = PairWorkers {
            name: "played".to_owned(),
            workers: vec![worker],
            control,
            next_mirrors: Some((Vec::new(), Vec::new())),
            sharing: None,
        };
        thread::scope(|scope| {
            let commit = scope.spawn(move || pair.commit());
            let Ok(Command::Keep(kept, done)) = to_control.recv() else { panic!("not kept") };
            assert!(kept.is_empty());
            let early = to_worker.try_recv();
            assert!(matches!(early, Err(TryRecvError::Empty)), "a policy before its mirrors");
            done.send(()).unwrap();
            let Ok(WorkerCommand::Commit(settled)) = to_worker.recv() else { panic!("no plan") };
            let early = to_control.try_recv();
            assert!(matches!(early, Err(TryRecvError::Empty)), "mirrors before their policy");
            settled.send(Left::default()).unwrap();
            let Ok(Command::Add(new, done)) = to_control.recv() else { panic!("not added") };
            assert!(new.is_empty());
            done.send(()).unwrap();
            commit.join().unwrap().unwrap();
        });
    }
}
