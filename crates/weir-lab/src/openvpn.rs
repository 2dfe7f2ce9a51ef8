//! A peer: OpenVPN in user space doing the gateways' job in the same namespaces.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::netns::SHORT;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, Gateways, Lab, Side};

const PORT: &str = "1194";
const DEVICE: &str = "tun0";
/// IPv4, UDP, operation with peer ID, packet ID, tag of AES-GCM.
const OVERHEAD: u32 = 20 + 8 + 4 + 4 + 16;

/// Two OpenVPN processes with a tunnel between them: AES-256-GCM, certificates of their own, and no
/// packet larger than the wire takes. Dropping it ends them.
#[derive(Debug)]
pub struct Tunnel {
    _daemons: Vec<Running>,
}

impl Tunnel {
    /// Starts the tunnel in a lab built with [`Gateways::Routed`].
    ///
    /// # Errors
    /// OpenVPN or openssl are missing, or the tunnel does not come up.
    pub fn start(lab: &Lab) -> Result<Self> {
        ensure!(lab.plan().gateways == Gateways::Routed, "OpenVPN needs routed gateways");
        process::require(&["openvpn", "openssl"])?;
        let fingerprints = [certify(lab, Side::A)?, certify(lab, Side::B)?];
        let mut daemons = Vec::new();
        for side in Side::BOTH {
            let mut command = lab.gateway(side).command("openvpn");
            command.args(arguments(lab, side, &fingerprints[side.other().index()]));
            daemons.push(Running::start(&mut command)?);
        }
        for (side, daemon) in Side::BOTH.into_iter().zip(&mut daemons) {
            daemon.wait_for("Initialization Sequence Completed", SHORT)?;
            let remote = 1 + side.other().index();
            lab.gateway(side).ip(&format!("route add 10.77.{remote}.0/24 dev {DEVICE}\n"))?;
        }
        Ok(Self { _daemons: daemons })
    }
}

fn file(lab: &Lab, side: Side, kind: &str) -> String {
    lab.folder().join(format!("openvpn{side:?}.{kind}")).display().to_string()
}

/// A key and a certificate of its own; returns its fingerprint, by which the other end knows it.
fn certify(lab: &Lab, side: Side) -> Result<String> {
    let (key, certificate) = (file(lab, side, "key"), file(lab, side, "crt"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args(["-nodes", "-days", "2", "-subj", "/CN=lab", "-keyout", &key]);
    process::run(command.args(["-out", &certificate]), SHORT)?;
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate]);
    let said = process::run(&mut command, SHORT)?.stdout;
    let (_, fingerprint) = said.trim().split_once('=').context("openssl names a fingerprint")?;
    Ok(fingerprint.to_owned())
}

fn arguments(lab: &Lab, side: Side, peer_fingerprint: &str) -> Vec<String> {
    let [own, other] = [side.index(), side.other().index()];
    let mtu = lab.plan().wire_mtu - OVERHEAD;
    let role = if side == Side::A { "--tls-client" } else { "--tls-server --dh none" };
    let (key, certificate) = (file(lab, side, "key"), file(lab, side, "crt"));
    format!(
        "--dev {DEVICE} --dev-type tun --proto udp4 --lport {PORT} --rport {PORT} \
         --local {} --remote {} --ifconfig 10.78.0.{} 10.78.0.{} {role} --cert {certificate} \
         --key {key} --peer-fingerprint {peer_fingerprint} --data-ciphers AES-256-GCM \
         --tun-mtu {mtu} --mssfix 0 --txqueuelen 1000 --disable-dco --fast-io --verb 3",
        GATEWAY_V4[own],
        GATEWAY_V4[other],
        own + 1,
        other + 1,
    )
    .split_whitespace()
    .map(str::to_owned)
    .collect()
}
