//! What a trial can do, step by step: the words that study files may write after `do =`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::load::{Load, Meter};
use super::{attacking, bypassing, generating, governor, listening, stream, tunnels, verbs};
use crate::gateways::{Gateways, Protection, Setup};
use crate::strongswan;
use crate::topology::{self, Lab, Plan};
use crate::vm::{Guest, GuestKernel};
use crate::{interrupt, process, rules};

/// What a guest's kernel needs for ESP.
const GUEST_MODULES: &str = "modprobe -a xfrm_user esp4 gcm ctr ghash_generic seqiv echainiv";
/// An emulated machine on a busy one.
const GUEST_PATIENCE: Duration = Duration::from_secs(60);

/// One step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Step {
    /// Fresh namespaces: two hosts, two gateways, a wire.
    Lab(LabStep),
    /// What stands between the hosts.
    Path(PathStep),
    /// TCP streams by iperf3, sampled every second at the receiver.
    Iperf3(stream::Iperf3),
    /// Traffic past the hosts' kernels (or through them), and who notices.
    Observe(bypassing::Observe),
    /// Traffic by a program that the study names, counted where it arrives.
    Generate(generating::Generate),
    /// The processors' frequency governor, for the rest of the trial.
    Governor(governor::Governor),
    /// An attack or its benign twin, at a gateway with the shipped rules.
    Attack(attacking::Attack),
    /// A tool that listens to a cable at a given rate; needs no lab.
    Listen(listening::Listen),
    /// Many tunnels at once; builds its own lab.
    Tunnels(tunnels::Tunnels),
    /// perftest between guests with Soft-RoCE.
    Perftest(verbs::Perftest),
}

/// Fresh namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabStep {
    /// MTU of hosts and wire, bytes.
    mtu: u32,
    #[serde(default)]
    hosts: HostKind,
}

/// What stands in the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HostKind {
    /// The namespace's own network stack.
    #[default]
    Stack,
    /// An emulated machine with a kernel of its own and Soft-RoCE.
    Guests,
}

/// What stands between the hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathStep {
    scenario: Scenario,
    #[serde(default)]
    cipher: Cipher,
    /// Whether the gateway of host A runs the shipped rules.
    #[serde(default)]
    rules: bool,
}

/// Who forwards, and who seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A cable: Linux bridges in the gateways' places, no protection.
    Cable,
    /// Two Weir gateways forward in clear.
    WeirClear,
    /// The same, flows carried by their kernels.
    WeirClearFastpath,
    /// Two Weir gateways seal by ESP in transport mode, as the hosts would.
    WeirSealed,
    /// Two Weir gateways seal whole frames by ESP in UDP, packets leaving together.
    WeirSealedUdp,
    /// Two Weir gateways put a tag into the place of RoCE packets' ICRC; nothing is sealed.
    WeirTag,
    /// The hosts seal for themselves, by strongSwan's user-space ESP, over a cable.
    HostIpsec,
    /// The guests' kernels seal, by their own ESP in transport mode, over a cable.
    GuestIpsec,
}

/// What seals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Cipher {
    /// Nothing.
    #[default]
    #[serde(rename = "none")]
    None,
    /// AES-256-GCM, ICV 128.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// AES-128-GCM, ICV 128.
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
}

/// What a trial stands on while it runs. Dropping it removes everything.
pub struct Stage<'a> {
    /// The `weir` program.
    pub program: &'a Path,
    /// Where raw output goes.
    pub raw: &'a Path,
    /// Where a killed run's lab is found again.
    pub running: PathBuf,
    /// Told the share of the trial that is over.
    pub tick: &'a mut dyn FnMut(f64),
    /// What was measured so far.
    pub measured: Measured,
    /// Where the hosts are reached, once there is a path.
    pub(super) path: Option<PathStep>,
    governor: Option<governor::Changed>,
    // Before the lab: what runs in it ends first.
    tunnel: Option<strongswan::Tunnel>,
    gateways: Option<Gateways>,
    guests: Option<[Guest; 2]>,
    lab: Option<Lab>,
}

/// What a trial measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Responses, one number each.
    pub values: BTreeMap<String, f64>,
    /// What they were taken from, in order of time.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Who used the processors meanwhile.
    pub load: Option<Load>,
}

impl Step {
    /// What it needs of this machine.
    ///
    /// # Errors
    /// Something is missing; says how to get it.
    pub fn require(&self) -> Result<()> {
        match self {
            Step::Lab(lab) if lab.hosts == HostKind::Guests => GuestKernel::find().map(drop),
            Step::Lab(_) => process::require(&["ip", "tc", "ethtool", "setpriv"]),
            Step::Path(path) => path.require(),
            Step::Iperf3(run) => run.require(),
            Step::Observe(run) => run.require(),
            Step::Generate(run) => run.require(),
            Step::Governor(governor) => governor.require(),
            Step::Attack(run) => run.require(),
            Step::Listen(run) => run.require(),
            Step::Tunnels(run) => run.require(),
            Step::Perftest(run) => run.require(),
        }
    }

    /// Seconds that it takes, about.
    pub fn expected_seconds(&self) -> f64 {
        match self {
            Step::Lab(lab) if lab.hosts == HostKind::Guests => 30.0,
            Step::Lab(_) => 2.0,
            Step::Path(path) if path.scenario == Scenario::HostIpsec => 2.0,
            Step::Path(_) => 1.0,
            Step::Iperf3(run) => f64::from(run.seconds) + 1.0,
            Step::Observe(run) => run.expected_seconds(),
            Step::Generate(run) => run.expected_seconds(),
            Step::Governor(_) => 0.0,
            Step::Attack(run) => run.expected_seconds(),
            Step::Listen(run) => run.expected_seconds(),
            Step::Tunnels(run) => run.expected_seconds(),
            Step::Perftest(run) => run.expected_seconds(),
        }
    }

    /// What it does, in words for the methods section.
    pub fn words(&self) -> String {
        match self {
            Step::Lab(lab) => format!(
                "Fresh network namespaces (host, gateway, wire, gateway, host){}, MTU {} bytes",
                match lab.hosts {
                    HostKind::Stack => "",
                    HostKind::Guests => " and a freshly started guest in each host",
                },
                lab.mtu
            ),
            Step::Path(_) => "The scenario of the trial is put between the hosts".to_owned(),
            Step::Iperf3(run) => run.words(),
            Step::Observe(run) => run.words(),
            Step::Generate(run) => run.words(),
            Step::Governor(_) => "All processors get the trial's frequency governor".to_owned(),
            Step::Attack(run) => run.words(),
            Step::Listen(run) => run.words(),
            Step::Tunnels(run) => run.words(),
            Step::Perftest(run) => run.words(),
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// It fails or a signal came: the trial has failed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        interrupt::check()?;
        match self {
            // Built before all steps, as the path needs it.
            Step::Lab(_) => Ok(()),
            Step::Path(path) => stage.put(path),
            Step::Iperf3(run) => run.run(stage),
            Step::Observe(run) => run.run(stage),
            Step::Generate(run) => run.run(stage),
            Step::Governor(governor) => {
                stage.governor = Some(governor.set()?);
                Ok(())
            }
            Step::Attack(run) => run.run(stage),
            Step::Listen(run) => run.run(stage),
            Step::Tunnels(run) => run.run(stage),
            Step::Perftest(run) => run.run(stage),
        }
    }
}

impl PathStep {
    fn require(&self) -> Result<()> {
        let seals = !matches!(
            self.scenario,
            Scenario::Cable | Scenario::WeirClear | Scenario::WeirClearFastpath | Scenario::WeirTag
        );
        ensure!(
            seals == (self.cipher != Cipher::None),
            "scenario {:?} cannot have cipher {:?}: exclude it",
            self.scenario,
            self.cipher
        );
        match self.scenario {
            Scenario::HostIpsec => strongswan::available(),
            Scenario::GuestIpsec => GuestKernel::find().map(drop),
            _ => Ok(()),
        }
    }

    /// Whether the hosts talk by the addresses that their own IPsec protects.
    pub(super) fn is_host_ipsec(&self) -> bool {
        self.scenario == Scenario::HostIpsec
    }

    fn setup(&self, program: &Path) -> Option<Setup> {
        let protection = match self.scenario {
            Scenario::Cable | Scenario::HostIpsec | Scenario::GuestIpsec => return None,
            Scenario::WeirTag => Protection::Tagged,
            Scenario::WeirClear | Scenario::WeirClearFastpath => Protection::Plain,
            Scenario::WeirSealed => Protection::BorrowedTransport,
            Scenario::WeirSealedUdp => Protection::SealedInUdp,
        };
        let mut setup = Setup::new(program, protection);
        if self.cipher == Cipher::Aes128Gcm {
            setup.cipher = "aes-128-gcm".to_owned();
        }
        if self.scenario == Scenario::WeirClearFastpath {
            setup.pair_lines = "fastpath = \"tc\"\n".to_owned();
        }
        Some(setup)
    }
}

impl<'a> Stage<'a> {
    /// An empty one.
    pub fn new(
        program: &'a Path,
        raw: &'a Path,
        running: PathBuf,
        tick: &'a mut dyn FnMut(f64),
    ) -> Self {
        let measured = Measured::default();
        let (path, tunnel, gateways, guests, lab) = (None, None, None, None, None);
        let governor = None;
        Self {
            program,
            raw,
            running,
            tick,
            measured,
            path,
            governor,
            tunnel,
            gateways,
            guests,
            lab,
        }
    }

    /// Does all steps.
    ///
    /// # Errors
    /// One fails.
    pub fn run(&mut self, steps: &[Step]) -> Result<()> {
        self.build(steps)?;
        steps.iter().try_for_each(|step| step.run(self))
    }

    /// The lab.
    ///
    /// # Errors
    /// There is none yet.
    pub(super) fn lab(&self) -> Result<&Lab> {
        self.lab.as_ref().context("a study's first step is `lab`")
    }

    /// The lab, and who is told what share of the trial is over.
    ///
    /// # Errors
    /// There is no lab yet.
    pub(super) fn lab_and_tick(&mut self) -> Result<(&Lab, &mut dyn FnMut(f64))> {
        let lab = self.lab.as_ref().context("a study's first step is `lab`")?;
        Ok((lab, &mut *self.tick))
    }

    /// A meter of this trial's processors.
    ///
    /// # Errors
    /// There is no lab yet.
    pub(super) fn meter(&self) -> Result<Meter> {
        Meter::start(self.lab()?)
    }

    /// Packets that gateway A has received from its host; none where there is no gateway.
    ///
    /// # Errors
    /// The gateway does not answer.
    pub(super) fn gateway_received(&self) -> Result<u64> {
        let Some(gateways) = &self.gateways else { return Ok(0) };
        let status = gateways.status(topology::Side::A)?;
        let received = status.pointer("/pairs/0/host/received").and_then(|it| it.as_u64());
        received.context("the gateway does not say what it received")
    }

    /// Packets from the wire that rules of gateway A have dropped.
    ///
    /// # Errors
    /// There is no gateway, or it does not answer.
    pub(super) fn gateway_dropped_by_rules(&self) -> Result<u64> {
        let gateways = self.gateways.as_ref().context("an attack needs a path of Weir's")?;
        let status = gateways.status(topology::Side::A)?;
        let dropped = status.pointer("/pairs/0/wire/dropped_by_reason/rule");
        Ok(dropped.and_then(|it| it.as_u64()).unwrap_or_default())
    }

    /// The guests, side A first.
    ///
    /// # Errors
    /// The study's lab has none.
    pub(super) fn guests(&mut self) -> Result<&mut [Guest; 2]> {
        self.guests.as_mut().context("this step needs a lab with hosts = \"guests\"")
    }

    /// Process ids of the gateways, where there are any.
    pub(super) fn gateway_processes(&self) -> Vec<u32> {
        self.gateways.iter().flat_map(Gateways::process_ids).collect()
    }

    /// The lab is built as the path needs it: bridges stand in its gateways or nothing does.
    fn build(&mut self, steps: &[Step]) -> Result<()> {
        let wanted = steps.iter().find_map(|step| match step {
            Step::Lab(lab) => Some(lab),
            _ => None,
        });
        let Some(LabStep { mtu, hosts }) = wanted.copied() else { return Ok(()) };
        let gateways = match steps.iter().find(|step| matches!(step, Step::Path(_))) {
            Some(Step::Path(path)) if path.setup(self.program).is_none() => {
                topology::Gateways::Bridge
            }
            _ => topology::Gateways::Empty,
        };
        let is_guests = hosts == HostKind::Guests;
        let hosts = if is_guests { topology::Hosts::Guests } else { topology::Hosts::Stack };
        self.build_lab(Plan { host_mtu: mtu, wire_mtu: mtu, gateways, hosts })?;
        if is_guests {
            let (lab, kernel) = (self.lab()?, GuestKernel::find()?);
            let boot = |side| Guest::boot(lab, side, &kernel);
            self.guests = Some([boot(topology::Side::A)?, boot(topology::Side::B)?]);
        }
        Ok(())
    }

    /// A lab that this trial removes at its end, and the next run of the study after a power loss.
    ///
    /// # Errors
    /// It cannot be built.
    pub(super) fn build_lab(&mut self, plan: Plan) -> Result<()> {
        let lab = Lab::build(plan)?;
        fs::write(&self.running, lab.id())?;
        self.lab = Some(lab);
        Ok(())
    }

    fn put(&mut self, path: &PathStep) -> Result<()> {
        self.path = Some(path.clone());
        let lab = self.lab()?;
        let mut tunnel = None;
        let mut gateways = None;
        if path.is_host_ipsec() {
            let cipher = match path.cipher {
                Cipher::Aes128Gcm => "aes128gcm16",
                _ => "aes256gcm16",
            };
            tunnel = Some(strongswan::Tunnel::start_on_hosts(lab, cipher)?);
        } else if let Some(mut setup) = path.setup(self.program) {
            if path.rules {
                setup.tables_of_a = rules::shipped(lab.folder(), true)?;
            }
            gateways = Some(Gateways::start(lab, &setup)?);
        }
        (self.tunnel, self.gateways) = (tunnel, gateways);
        for guest in self.guests.iter_mut().flatten() {
            guest.wait_ready()?;
        }
        match path.scenario {
            Scenario::GuestIpsec => self.seal_in_guests(path.cipher),
            _ => Ok(()),
        }
    }

    /// Associations and policies of the guests' own kernels: transport mode, everything between
    /// the two.
    fn seal_in_guests(&mut self, cipher: Cipher) -> Result<()> {
        let key = "5a".repeat(if cipher == Cipher::Aes128Gcm { 20 } else { 36 });
        for (own, guest) in self.guests()?.iter_mut().enumerate() {
            let mut line = GUEST_MODULES.to_owned();
            for (from, to) in [(0, 1), (1, 0)] {
                let [source, target] = [from, to].map(|it| topology::HOST_V4[it]);
                let direction = if own == from { "out" } else { "in" };
                line += &format!(
                    " && ip xfrm state add src {source} dst {target} proto esp spi {} reqid 1 \
                     mode transport aead 'rfc4106(gcm(aes))' 0x{key} 128 && ip xfrm policy add \
                     src {source} dst {target} dir {direction} tmpl src {source} dst {target} \
                     proto esp reqid 1 mode transport",
                    0x1000 + from
                );
            }
            let sealed = guest.run(&line, GUEST_PATIENCE)?.success();
            sealed.context("the guests' kernels refuse ESP")?;
        }
        Ok(())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.tunnel = None;
        self.gateways = None;
        self.guests = None;
        self.lab = None;
        let _ = fs::remove_file(&self.running);
    }
}
