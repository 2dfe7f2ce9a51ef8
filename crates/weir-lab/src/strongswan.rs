//! A peer: strongSwan with its ESP in user space (kernel-libipsec) doing the gateways' job in the
//! same namespaces.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, Gateways, HOST_V4, Lab, Side};

const CHARON: &str = "/usr/lib/ipsec/charon";
const LIBIPSEC: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";

/// The largest IP packet that its device takes, whatever the wire: charon 5.9 reads no more from it
/// when it is set wider.
pub const DEVICE_MTU: u32 = 1400;

/// Addresses that hosts with IPsec of their own talk by: its user-space ESP can protect neither the
/// addresses it sends from nor transport mode.
pub const INNER_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 1, 1), Ipv4Addr::new(10, 78, 2, 1)];

/// Two charons with an association between them, AES-GCM in UDP. Dropping it ends them.
#[derive(Debug)]
pub struct Tunnel {
    _daemons: Vec<Running>,
}

impl Tunnel {
    /// Starts it in a lab built with [`Gateways::Routed`].
    ///
    /// # Errors
    /// charon, its kernel-libipsec or swanctl are missing, or the tunnel does not come up.
    pub fn start(lab: &Lab) -> Result<Self> {
        ensure!(lab.plan().gateways == Gateways::Routed, "strongSwan needs routed gateways");
        Self::between(lab, &Side::BOTH.map(|side| End::gateway(lab, side)), "aes256gcm16")
    }

    /// Starts it between the hosts themselves, in a lab that does not route: what they send each
    /// other by [`INNER_V4`] is sealed, in tunnel mode. `cipher` is `aes256gcm16` or `aes128gcm16`.
    ///
    /// # Errors
    /// As [`Tunnel::start`].
    pub fn start_on_hosts(lab: &Lab, cipher: &str) -> Result<Self> {
        ensure!(lab.plan().gateways != Gateways::Routed, "hosts reach each other without routes");
        for side in Side::BOTH {
            let inner = INNER_V4[side.index()];
            lab.host(side).ip(&format!("addr add {inner}/32 dev lo\n"))?;
        }
        let tunnel = Self::between(lab, &Side::BOTH.map(|side| End::host(lab, side)), cipher)?;
        for side in Side::BOTH {
            let (own, other) = (INNER_V4[side.index()], INNER_V4[side.other().index()]);
            // charon's route is in a table of its own that is asked first; ours, with the pinned
            // congestion control, replaces it.
            lab.host(side).ip(&format!(
                "route replace {other}/32 dev ipsec0 src {own} congctl cubic table 220\n"
            ))?;
        }
        Ok(tunnel)
    }

    fn between(lab: &Lab, ends: &[End; 2], cipher: &str) -> Result<Self> {
        available()?;
        let mut daemons = Vec::new();
        for side in Side::BOTH {
            daemons.push(charon(lab, side, ends, cipher)?);
        }
        for side in Side::BOTH {
            interrupt::until("charon's socket", SHORT, || Ok(vici(lab, side).exists()))?;
            swanctl(lab, side, &["--load-all", "--noprompt"])?;
        }
        swanctl(lab, Side::A, &["--initiate", "--child", "net"])?;
        Ok(Self { _daemons: daemons })
    }
}

/// Where a charon runs, the address it sends from, and what it protects.
struct End<'a> {
    namespace: &'a Namespace,
    address: Ipv4Addr,
    protects: String,
}

impl<'a> End<'a> {
    fn gateway(lab: &'a Lab, side: Side) -> Self {
        let protects = format!("10.77.{}.0/24", side.index() + 1);
        Self { namespace: lab.gateway(side), address: GATEWAY_V4[side.index()], protects }
    }

    fn host(lab: &'a Lab, side: Side) -> Self {
        let protects = format!("{}/32", INNER_V4[side.index()]);
        Self { namespace: lab.host(side), address: HOST_V4[side.index()], protects }
    }
}

/// Whether its parts are there.
///
/// # Errors
/// charon, its kernel-libipsec or swanctl are missing; says how to get them.
pub fn available() -> Result<()> {
    process::require(&["swanctl", "unshare"])?;
    for needed in [CHARON, LIBIPSEC] {
        ensure!(
            Path::new(needed).exists(),
            "no {needed}; try `apt-get install strongswan-charon libcharon-extra-plugins`"
        );
    }
    Ok(())
}

fn folder(lab: &Lab, side: Side) -> PathBuf {
    lab.folder().join(format!("strongswan{side:?}"))
}

fn vici(lab: &Lab, side: Side) -> PathBuf {
    folder(lab, side).join("vici")
}

fn charon(lab: &Lab, side: Side, ends: &[End; 2], cipher: &str) -> Result<Running> {
    let folder = folder(lab, side);
    let run = folder.join("run").join("weir-lab");
    fs::create_dir_all(folder.join("swanctl"))?;
    fs::create_dir_all(&run)?;
    let settings = format!(
        "charon {{\n load = random nonce openssl aes gcm sha1 sha2 hmac kdf pem pkcs1 pkcs8 x509 \
         pubkey constraints revocation kernel-libipsec kernel-netlink socket-default vici updown\n\
         plugins {{\n vici {{ socket = unix://{} }}\n }}\n\
         filelog {{\n stderr {{ default = 0 }}\n }}\n}}\n",
        vici(lab, side).display(),
    );
    fs::write(folder.join("strongswan.conf"), settings)?;
    fs::write(folder.join("swanctl/swanctl.conf"), connection(side, ends, cipher))?;
    // charon's lock is in /run: in this namespace of mounts that is a folder of its own, with the
    // lab's in it.
    let start = format!(
        "mount --rbind /run/weir-lab {} && mount --rbind {} /run && exec {CHARON}",
        run.display(),
        folder.join("run").display(),
    );
    let mut command = ends[side.index()].namespace.command("unshare");
    command.args(["-m", "sh", "-c", &start]);
    command.env("STRONGSWAN_CONF", folder.join("strongswan.conf"));
    Running::start(&mut command).context("charon does not start")
}

fn connection(side: Side, ends: &[End; 2], cipher: &str) -> String {
    let (own, other) = (&ends[side.index()], &ends[side.other().index()]);
    let (local, remote) = (own.address, other.address);
    format!(
        "connections {{\n gateways {{\n version = 2\n encap = yes\n mobike = no\n\
         local_addrs = {local}\n remote_addrs = {remote}\n\
         proposals = aes256gcm16-prfsha256-ecp256\n\
         local {{\n auth = psk\n }}\n remote {{\n auth = psk\n }}\n\
         children {{\n net {{\n local_ts = {}\n remote_ts = {}\n\
         esp_proposals = {cipher}-ecp256-noesn\n mode = tunnel\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-gateways {{\n id-a = {local}\n id-b = {remote}\n\
         secret = \"of a lab that ends with its test\"\n }}\n}}\n",
        own.protects, other.protects,
    )
}

fn swanctl(lab: &Lab, side: Side, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("swanctl");
    command.args(arguments).arg("--uri").arg(format!("unix://{}", vici(lab, side).display()));
    command.env("SWANCTL_DIR", folder(lab, side).join("swanctl"));
    command.env("STRONGSWAN_CONF", folder(lab, side).join("strongswan.conf"));
    process::run(&mut command, SHORT)?;
    Ok(())
}
