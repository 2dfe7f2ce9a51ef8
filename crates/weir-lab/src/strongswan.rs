//! A peer: strongSwan with its ESP in user space (kernel-libipsec) doing the gateways' job in the
//! same namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::netns::SHORT;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, Gateways, Lab, Side};

const CHARON: &str = "/usr/lib/ipsec/charon";
const LIBIPSEC: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";

/// The largest IP packet that its device takes, whatever the wire: charon 5.9 reads no more from it
/// when it is set wider.
pub const DEVICE_MTU: u32 = 1400;

/// Two charons with an association between them: AES-256-GCM in UDP. Dropping it ends them.
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
        available()?;
        let mut daemons = Vec::new();
        for side in Side::BOTH {
            daemons.push(charon(lab, side)?);
        }
        for side in Side::BOTH {
            interrupt::until("charon's socket", SHORT, || Ok(vici(lab, side).exists()))?;
            swanctl(lab, side, &["--load-all", "--noprompt"])?;
        }
        swanctl(lab, Side::A, &["--initiate", "--child", "net"])?;
        Ok(Self { _daemons: daemons })
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

fn charon(lab: &Lab, side: Side) -> Result<Running> {
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
    fs::write(folder.join("swanctl/swanctl.conf"), connection(side))?;
    // charon's lock is in /run: in this namespace of mounts that is a folder of its own, with the
    // lab's in it.
    let start = format!(
        "mount --rbind /run/weir-lab {} && mount --rbind {} /run && exec {CHARON}",
        run.display(),
        folder.join("run").display(),
    );
    let mut command = lab.gateway(side).command("unshare");
    command.args(["-m", "sh", "-c", &start]);
    command.env("STRONGSWAN_CONF", folder.join("strongswan.conf"));
    Running::start(&mut command).context("charon does not start")
}

fn connection(side: Side) -> String {
    let [own, other] = [side.index(), side.other().index()];
    let [local, remote] = [GATEWAY_V4[own], GATEWAY_V4[other]];
    format!(
        "connections {{\n gateways {{\n version = 2\n encap = yes\n mobike = no\n\
         local_addrs = {local}\n remote_addrs = {remote}\n\
         proposals = aes256gcm16-prfsha256-ecp256\n\
         local {{\n auth = psk\n }}\n remote {{\n auth = psk\n }}\n\
         children {{\n net {{\n local_ts = 10.77.{}.0/24\n remote_ts = 10.77.{}.0/24\n\
         esp_proposals = aes256gcm16-ecp256-noesn\n mode = tunnel\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-gateways {{\n id-a = {local}\n id-b = {remote}\n\
         secret = \"of a lab that ends with its test\"\n }}\n}}\n",
        own + 1,
        other + 1,
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
