//! What may stand between a cable's ends, as Hintze (2021) had it: a gateway that forwards, where
//! tools listen at its port or at a mirror of it.
//!
//! ```text
//!   [ sender ] tx0 ---- g0 [ bridge | Weir | OVS ] g1 ---- rx0 [ host ]
//!                              mirror: m0 ---- m1
//! ```

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::interrupt;
use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};

/// The gateway's port at the sender, and at the host.
pub(super) const NEAR: &str = "g0";
pub(super) const FAR: &str = "g1";
/// A mirror's port, and where it is listened to.
const MIRROR: &str = "m0";
pub(super) const MIRRORED: &str = "m1";
/// Where nfcapd takes OVS's NetFlow.
pub(super) const NETFLOW_PORT: u16 = 9996;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Forwarder {
    /// Nobody: one veth.
    Cable,
    /// A Linux bridge.
    Bridge,
    /// Weir in clear.
    Weir,
    /// The same, flows carried by its kernel.
    WeirFastpath,
    /// Open vSwitch by its user-space datapath.
    Ovs,
}

/// Who copies for a port of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mirror {
    /// Nobody: tools listen where frames pass.
    #[default]
    None,
    Weir,
    Ovs,
}

/// A gateway that forwards. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Between {
    // Before the namespace and the folder that they run in.
    daemons: Vec<Running>,
    pub(super) gateway: Namespace,
    folder: tempfile::TempDir,
    pub(super) mirrors: bool,
}

impl Forwarder {
    /// # Errors
    /// Its programs are missing, or it has no such mirror.
    pub(crate) fn require(self, mirror: Mirror) -> Result<()> {
        let has = match mirror {
            Mirror::None => true,
            Mirror::Weir => matches!(self, Forwarder::Weir | Forwarder::WeirFastpath),
            Mirror::Ovs => self == Forwarder::Ovs,
        };
        ensure!(has, "{self:?} has no mirror of {mirror:?}: exclude it");
        match self {
            Forwarder::Ovs => {
                process::require(&["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"])
            }
            _ => Ok(()),
        }
    }
}

impl Between {
    /// Makes the gateway and its cables, and starts what forwards.
    pub(super) fn start(
        (sender, listener): (&Namespace, &Namespace),
        (carrier, mirror): (Forwarder, Mirror),
        program: &Path,
        has_netflow: bool,
    ) -> Result<Self> {
        let gateway = Namespace::create(&format!("weir-cable-{}-gw", std::process::id()))?;
        let quiet = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
        gateway.set(&quiet.map(|key| (key, "1")))?;
        gateway.ip(&format!(
            "link add {NEAR} type veth peer name {} netns {}\n\
             link add {FAR} type veth peer name {} netns {}\n\
             link add {MIRROR} type veth peer name {MIRRORED}\n\
             link set {NEAR} up\nlink set {FAR} up\nlink set {MIRROR} up\nlink set {MIRRORED} up\n",
            super::SENDING,
            sender.name(),
            super::LISTENING,
            listener.name(),
        ))?;
        for port in [NEAR, FAR, MIRROR, MIRRORED] {
            gateway.run(&format!("ethtool -K {port} tso off gso off gro on"))?;
        }
        let folder = tempfile::tempdir()?;
        let mirrors = mirror != Mirror::None;
        let mut between = Self { daemons: Vec::new(), gateway, folder, mirrors };
        match carrier {
            Forwarder::Cable | Forwarder::Bridge => between.bridge()?,
            Forwarder::Weir => between.weir(program, "")?,
            Forwarder::WeirFastpath => between.weir(program, "fastpath = \"tc\"\n")?,
            Forwarder::Ovs => between.ovs(has_netflow)?,
        }
        Ok(between)
    }

    fn bridge(&self) -> Result<()> {
        self.gateway.ip(&format!(
            "link add br0 type bridge stp_state 0 mcast_snooping 0\n\
             link set {NEAR} master br0\nlink set {FAR} master br0\nlink set br0 up\n"
        ))?;
        Ok(())
    }

    fn weir(&mut self, program: &Path, lines: &str) -> Result<()> {
        let folder = self.folder.path();
        let mut text = format!(
            "[gateway]\nname = \"gw\"\nstate_dir = \"{0}/state\"\nrun_dir = \"{0}/run\"\n\n\
             [[pair]]\nhost = \"{NEAR}\"\nwire = \"{FAR}\"\ndefault = \"forward\"\n{lines}",
            folder.display()
        );
        if self.mirrors {
            text += &format!("\n[[mirror]]\nname = \"tools\"\nport = \"{MIRROR}\"\n");
        }
        let file = folder.join("gw.toml");
        fs::write(&file, text)?;
        let mut command = self.gateway.command(&program.display().to_string());
        let mut daemon = Running::start(command.arg("up").arg(file))?;
        daemon.wait_for("ready", SHORT)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// With folders of its own: another Open vSwitch of this machine is left alone.
    fn ovs(&mut self, has_netflow: bool) -> Result<()> {
        let folder = self.folder.path().to_owned();
        let database = folder.join("conf.db");
        let socket = folder.join("db.sock");
        let mut make = Command::new("ovsdb-tool");
        make.arg("create").arg(&database).arg("/usr/share/openvswitch/vswitch.ovsschema");
        process::run(&mut make, SHORT)?;
        let environment = |command: &mut Command| {
            for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
                command.env(name, &folder);
            }
        };
        let mut server = self.gateway.command("ovsdb-server");
        server.arg(format!("--remote=punix:{}", socket.display())).arg(&database);
        environment(&mut server);
        self.daemons.push(Running::start(&mut server)?);
        // It is there a moment before anyone listens at it.
        interrupt::until("OVS's database", SHORT, || Ok(UnixStream::connect(&socket).is_ok()))?;
        let mut switch = self.gateway.command("ovs-vswitchd");
        switch.arg(format!("unix:{}", socket.display()));
        environment(&mut switch);
        self.daemons.push(Running::start(&mut switch)?);
        let set = |line: &str| -> Result<()> {
            let mut command = self.gateway.command("ovs-vsctl");
            environment(&mut command);
            command.arg(format!("--db=unix:{}", socket.display())).arg("--timeout=15");
            process::run(command.args(line.split_whitespace()), SHORT).context("ovs-vsctl")?;
            Ok(())
        };
        set("--no-wait init")?;
        set(&format!(
            "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 {NEAR} -- \
             add-port br0 {FAR}"
        ))?;
        if self.mirrors {
            set(&format!(
                "add-port br0 {MIRROR} -- --id=@from get port {NEAR} -- --id=@to get port \
                 {MIRROR} -- --id=@all create mirror name=tools select-src-port=@from \
                 output-port=@to -- set bridge br0 mirrors=@all"
            ))?;
        }
        if has_netflow {
            // A flow is told once a second, and at its end, which is soon: the paper's 30 seconds,
            // and OVS's 10 until an idle flow ends, are longer than a short trial.
            set("set Open_vSwitch . other_config:max-idle=1000")?;
            set(&format!(
                "-- set Bridge br0 netflow=@nf -- --id=@nf create NetFlow \
                 targets=\"127.0.0.1:{NETFLOW_PORT}\" active-timeout=1"
            ))?;
        }
        Ok(())
    }
}
