//! A tool that listens to a cable at a given rate, as an experiment: what it takes, and whether the
//! cable carries less because of it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::load::Meter;
use super::steps::Stage;
use crate::listeners::{Cable, Forwarder, Mirror, Tool, Trial};
use crate::traffic::frames::RoceStream;

/// Bytes of a RoCE v2 frame beside its payload.
const HEADERS: usize = 58;
/// The tool that is none: what the port loses by itself is measured so.
const NOBODY: &str = "nobody";

/// One tool, one rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// One of `programs`, or `nobody`.
    tool: String,
    /// Programs that listen, by name.
    programs: BTreeMap<String, Tool>,
    /// Bytes of a RoCE v2 frame.
    frame_bytes: usize,
    /// What is sent, Gb/s of frames.
    gbps: f64,
    /// How long.
    seconds: u32,
    /// Where the tool listens: at the host, or at a gateway that forwards to it.
    #[serde(default)]
    place: ListenPoint,
    /// Who forwards, where the tool listens at a gateway.
    #[serde(default = "cable")]
    path: Forwarder,
    /// Who mirrors to the tool's port.
    #[serde(default)]
    mirror: Mirror,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ListenPoint {
    #[default]
    Host,
    Gateway,
}

fn cable() -> Forwarder {
    Forwarder::Cable
}

impl Listen {
    pub(super) fn require(&self) -> Result<()> {
        ensure!(self.gbps > 0.0 && self.gbps <= 400.0, "listen: 0 to 400 Gb/s");
        ensure!((1..=3600).contains(&self.seconds), "listen: 1 to 3600 seconds");
        let is_cable = self.path == Forwarder::Cable;
        ensure!(
            (self.place == ListenPoint::Host) == is_cable,
            "place {:?} cannot have path {:?}: exclude it",
            self.place,
            self.path
        );
        self.path.require(self.mirror)?;
        let payload = self.frame_bytes.checked_sub(HEADERS);
        let is_frame = payload.is_some_and(|it| (4..=8000).contains(&it) && it % 4 == 0);
        ensure!(is_frame, "listen: frame_bytes of 62 to 8058, such that the payload is full words");
        let Some(tool) = self.listener()? else { return Ok(()) };
        let is_told = !tool.netflow || self.path == Forwarder::Ovs;
        ensure!(is_told, "only OVS has its NetFlow: exclude {} elsewhere", self.tool);
        tool.require()
    }

    fn listener(&self) -> Result<Option<&Tool>> {
        if self.tool == NOBODY {
            return Ok(None);
        }
        let names = || self.programs.keys().cloned().collect::<Vec<_>>().join(", ");
        let found = self.programs.get(&self.tool);
        found.map(Some).with_context(|| {
            format!("no program is called {}; there are {} and {NOBODY}", self.tool, names())
        })
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        f64::from(self.seconds) + if self.place == ListenPoint::Host { 4.0 } else { 7.0 }
    }

    pub(super) fn words(&self) -> String {
        format!(
            "A sender inside the kernel sends RoCE v2 frames of {} bytes over a veth at \
             the trial's rate for {} s, or through a gateway, while the trial's tool listens at \
             the other end, or at the gateway, and writes to /dev/null; the kernel's counter of \
             the host's port says what arrived, the tool what it took",
            self.frame_bytes, self.seconds
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let tool = self.listener()?;
        let has_netflow = tool.is_some_and(|it| it.netflow);
        let cable = match self.place {
            ListenPoint::Host => Cable::new()?,
            ListenPoint::Gateway => {
                Cable::through(self.path, self.mirror, stage.program, has_netflow)?
            }
        };
        let frame = RoceStream::new(self.frame_bytes - HEADERS)?.first().clone();
        let bits = 8.0 * self.frame_bytes as f64;
        let rate = self.gbps * 1e9 / bits;
        // At a rate that is not reached, as many frames would take many times as long.
        let reached = cable.reached(&frame, rate as u32)?;
        if has_netflow {
            // What OVS still tells of those frames is not the trial's.
            crate::interrupt::sleep(Duration::from_secs(6))?;
        }
        let count = rate.min(reached) * f64::from(self.seconds);
        let null = "/dev/null".as_ref();
        let meter = Meter::of(&cable.places())?;
        let found = cable.trial(stage.program, tool, &frame, null, (count as u32, rate as u32))?;
        stage.measured.load = Some(meter.finish());
        let Trial { sent, seconds, delivered, passed, counted } = found;
        let raw = json!({
            "sent": sent, "seconds": seconds, "delivered": delivered, "passed": passed,
            "counted": counted,
            "wanted_frames_per_second": rate,
        });
        fs::write(stage.raw.join("counts.json"), format!("{raw:#}\n"))?;
        ensure!(sent > 0, "nothing was sent");
        ensure!(counted <= sent, "the tool says {counted} where {sent} were sent");
        let percent = |part: u64| 100.0 * part as f64 / sent as f64;
        let values = &mut stage.measured.values;
        let gbps = |frames: u64| frames as f64 * bits / seconds / 1e9;
        values.insert("offered".to_owned(), gbps(sent));
        values.insert("carried".to_owned(), gbps(delivered.min(sent)));
        values.insert("arrived".to_owned(), percent(delivered.min(sent)));
        values.insert("packets".to_owned(), sent as f64);
        // What was lost before the tool's port, without its doing: Hintze subtracts it.
        values.insert("lost_before".to_owned(), sent.saturating_sub(passed) as f64);
        if tool.is_some() {
            let lost = passed.saturating_sub(counted);
            values.insert("taken".to_owned(), percent(counted));
            values.insert("lost".to_owned(), percent(lost));
            values.insert("lost_packets".to_owned(), lost as f64);
        }
        Ok(())
    }
}
