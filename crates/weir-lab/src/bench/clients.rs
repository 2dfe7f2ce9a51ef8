//! The gateway as the concentrator of VPN clients, beside those of others.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Figure, Options, ROUNDS, Samples, TOOLS};
use crate::interrupt;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, HOST_PORT, HOST_V4, Lab, Plan, Side, WIRE_PORT};
use crate::traffic::iperf::{self, Extent, TcpReport};
use crate::vpn::{Client, Concentrator};
use crate::vpn_end::Tunnelled;
use crate::wireguard;

/// A tunnel that is not up by then will not be.
const UP: Duration = Duration::from_secs(30);

fn tcp(tunnel: &Tunnelled, options: &Options) -> Result<TcpReport> {
    let (from, to) = (tunnel.lab().host(Side::B), tunnel.lab().host(Side::A));
    let extent = Extent::Seconds(options.tcp_seconds());
    iperf::tcp(from, to, IpAddr::V4(HOST_V4[0]), extent)
}

/// One stream, by Weir's own WireGuard end to either concentrator.
pub(super) fn stream(options: &Options) -> Result<Vec<Figure>> {
    process::require(&TOOLS)?;
    let theirs = Tunnelled::by_wireguard_go(&options.program)?;
    let ours = Tunnelled::by_weir(&options.program)?;
    let (mut our_samples, mut their_samples) = (Samples::default(), Samples::default());
    let mut resent = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds(ROUNDS) {
        let (their_run, our_run) = (tcp(&theirs, options)?, tcp(&ours, options)?);
        their_samples.0.push(their_run.gbps);
        our_samples.0.push(our_run.gbps);
        resent[0].push(our_run.retransmits);
        resent[1].push(their_run.retransmits);
    }
    let [own, others] = resent;
    let note = format!(
        "one TCP stream from a client, cubic, MTU 9000, {} s; Weir is the client of both; \
         retransmits {own:?}, peer {others:?}; want at least 2",
        options.tcp_seconds()
    );
    let figure = Figure::new("vpn_stream_vs_wireguard_go", "Gb/s", &our_samples);
    Ok(vec![figure.against(&wireguard::name(), &their_samples).noted(&note)])
}

/// Tunnels at once, as in the paper that the sweep follows.
const TUNNELS: [usize; 3] = [1, 8, 16];
/// MTU inside the tunnels; the wire's is 9000.
const MTUS: [u32; 2] = [1400, 8000];
const CIPHERS: [&str; 3] = ["aes128-gcm", "aes256-gcm", "chacha20-poly1305"];
const SWEEP_SECONDS: u32 = 3;

/// A stream by each of many tunnels to the host, together: wireguard-go's that end in Weir, beside
/// OpenVPN's own daemons with each of its ciphers.
pub(super) fn sweep(options: &Options) -> Result<Vec<Figure>> {
    process::require(&TOOLS)?;
    process::require(&["openvpn", "openssl"])?;
    let mut figures = Vec::new();
    for mtu in MTUS {
        for tunnels in TUNNELS {
            let ours = Samples(vec![by_weir(options, tunnels, mtu)?]);
            for cipher in CIPHERS {
                let theirs = Samples(vec![by_openvpn(options, tunnels, cipher, mtu)?]);
                let name = format!("vpn_sweep_{tunnels}_{mtu}_{cipher}");
                let figure = Figure::new(&name, "Gb/s", &ours);
                let note = format!(
                    "{tunnels} tunnels to the host, a TCP stream each, {} s, MTU {mtu} inside; \
                     wireguard-go's clients end in Weir (ChaCha20-Poly1305), OpenVPN's in its own \
                     daemons; clients and concentrator share the machine",
                    sweep_seconds(options)
                );
                figures.push(figure.against(&format!("OpenVPN {cipher}"), &theirs).noted(&note));
            }
        }
    }
    Ok(figures)
}

fn sweep_seconds(options: &Options) -> u32 {
    if options.quick { 1 } else { SWEEP_SECONDS }
}

fn by_weir(options: &Options, tunnels: usize, mtu: u32) -> Result<f64> {
    let lab = Lab::build(Plan::default())?;
    let gateway = Concentrator::start(&lab, &options.program, "")?;
    let namespace = Client::namespace(&lab);
    let (mut clients, mut sources) = (Vec::new(), Vec::new());
    for number in 0..tunnels {
        let file = gateway.add(&format!("client-{number}"))?;
        let client = Client::start(&lab, number, &file)?;
        namespace.ip(&format!("link set {} mtu {mtu}\n", client.port()))?;
        sources.push(format!("{}%{}", client.address(), client.port()));
        clients.push(client);
    }
    together(options, &lab, &sources)
}

fn by_openvpn(options: &Options, tunnels: usize, cipher: &str, mtu: u32) -> Result<f64> {
    let lab = Lab::build(Plan::default())?;
    let folder = lab.folder().join("openvpn");
    let [server, _] = GATEWAY_V4;
    let mut command = Command::new(&options.program);
    command.args(["vpn", "openvpn", "--remote", &server.to_string(), "--cipher", cipher]);
    command.args(["--tunnels", &tunnels.to_string(), "--mtu", &mtu.to_string(), "-o"]);
    process::run(command.arg(&folder), UP)?;
    for (side, own) in Side::BOTH.into_iter().zip(GATEWAY_V4) {
        lab.gateway(side).ip(&format!("addr add {own}/24 dev {WIRE_PORT}\n"))?;
    }
    let ([host, _], gateway) = (HOST_V4, lab.gateway(Side::A));
    gateway.set(&[("net.ipv4.ip_forward", "1")])?;
    let near = "10.77.0.254";
    gateway.ip(&format!(
        "addr add {near}/32 dev {HOST_PORT}\nroute add {host}/32 dev {HOST_PORT}\n"
    ))?;
    lab.host(Side::A).ip(&format!("route add 10.98.0.0/16 via {near}\n"))?;
    let mut daemons = Vec::new();
    for (side, end) in [(Side::A, "server"), (Side::B, "client")] {
        for number in 1..=tunnels {
            let mut command = lab.gateway(side).command("openvpn");
            command.arg("--config").arg(folder.join(format!("{end}-{number}.conf")));
            daemons.push(Running::start(&mut command)?);
        }
    }
    for daemon in &mut daemons {
        daemon.wait_for("Initialization Sequence Completed", UP)?;
    }
    // Which of its ports a client took is not its file's to say.
    let said = lab.gateway(Side::B).run("ip -o -4 addr show")?.stdout;
    let sources: Vec<String> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (device, address) = (words.next()?, words.nth(1)?);
            let address = address.split('/').next()?;
            address.starts_with("10.98.").then(|| format!("{address}%{device}"))
        })
        .collect();
    ensure!(sources.len() == tunnels, "{} of {tunnels} tunnels: {said}", sources.len());
    together(options, &lab, &sources)
}

fn together(options: &Options, lab: &Lab, sources: &[String]) -> Result<f64> {
    let host = IpAddr::V4(HOST_V4[0]);
    for source in sources {
        let (_, device) = source.split_once('%').context("an address and a device")?;
        interrupt::until("the tunnel", UP, || {
            let ping = format!("ping -c 1 -W 1 -I {device} {host}");
            Ok(lab.gateway(Side::B).run(&ping).is_ok())
        })?;
    }
    let (from, to) = (lab.gateway(Side::B), lab.host(Side::A));
    iperf::tcp_together(from, to, host, sources, sweep_seconds(options))
}
