//! Suricata on a host, as one of those who might notice: a rule that alerts on each packet of the
//! trial's kind.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::Value;

use crate::process::Running;
use crate::suricata;
use crate::topology::{HOST_DEVICE, Lab, Side};
use crate::traffic::Kind;

const START: Duration = Duration::from_secs(60);
/// It reads what is in its ring within this.
const SETTLE: Duration = Duration::from_millis(800);

const CONFIGURATION: &str = "%YAML 1.1\n---\n\
vars:\n  address-groups:\n    HOME_NET: \"any\"\n    EXTERNAL_NET: \"any\"\n\
af-packet:\n  - interface: eth0\n    cluster-id: 77\n    cluster-type: cluster_flow\n\
outputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n\
\x20       - alert\n\
\x20       - stats:\n            totals: yes\n            threads: no\n\
stats:\n  enabled: yes\n  interval: 1\n\
logging:\n  default-log-level: notice\n  outputs:\n  - console:\n      enabled: yes\n";

/// Suricata at work on host A.
pub(super) struct Listening {
    running: Running,
    log: PathBuf,
    kind: Kind,
}

impl Listening {
    /// Starts it where it is installed; else there is none.
    ///
    /// # Errors
    /// It is installed and does not start.
    pub(super) fn start(lab: &Lab, kind: Kind) -> Result<Option<Self>> {
        let Some(root) = suricata::root() else { return Ok(None) };
        // Inside its root; one a process, for labs side by side.
        let inside = format!("/weir-bypass-{}", std::process::id());
        let folder = root.join(&inside[1..]);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("log"))?;
        fs::write(folder.join("suricata.yaml"), CONFIGURATION)?;
        fs::write(folder.join("rules"), rule(kind))?;
        let mut command = lab.host(Side::A).command("chroot");
        command.arg(&root).args(["suricata", "--runmode", "single", "-k", "none"]);
        command.args(["-c", &format!("{inside}/suricata.yaml"), "-S", &format!("{inside}/rules")]);
        command.args(["-l", &format!("{inside}/log"), &format!("--af-packet={HOST_DEVICE}")]);
        let mut running = Running::start(&mut command)?;
        let log = folder.join("log/eve.json");
        let listening = running.wait_for("Engine started", START);
        listening.context("Suricata on the host does not start")?;
        Ok(Some(Self { running, log, kind }))
    }

    /// Ends it; packets of the kind that it has seen.
    pub(super) fn stop(self) -> Result<u64> {
        crate::interrupt::sleep(SETTLE)?;
        self.running.stop(Signal::INT)?;
        let text = fs::read_to_string(&self.log).context("Suricata wrote nothing")?;
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<Value> = events.collect();
        if let Some(folder) = self.log.parent().and_then(|it| it.parent()) {
            let _ = fs::remove_dir_all(folder);
        }
        if self.kind == Kind::RoceV1 {
            // No rule knows its Ethernet type: its decoder counts those.
            let last = events.iter().rev().find(|it| it["event_type"] == "stats");
            let count = last.and_then(|it| {
                it.pointer("/stats/decoder/event/ethernet/unknown_ethertype")?.as_u64()
            });
            return Ok(count.unwrap_or(0));
        }
        Ok(events.iter().filter(|it| it["event_type"] == "alert").count() as u64)
    }
}

fn rule(kind: Kind) -> String {
    let head = match kind {
        Kind::Ping => "icmp any any -> any any (itype:8;",
        Kind::TcpPrebuilt => "tcp any any -> any 22992 (dsize:>=0;",
        _ => "udp any any -> any 4791 (dsize:>=0;",
    };
    format!("alert {head} msg:\"of the trial\"; sid:1;)\n")
}
