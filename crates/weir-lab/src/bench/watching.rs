//! What it costs to be watched: forwarding with a mirror, or with an evidence ring, as a share of
//! forwarding without.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Figure, Options, Route, share_of_tcp};
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::netns::Namespace;
use crate::topology::{Lab, Plan, Side};

/// Gateway A's port for the copies, and its other end.
const MIRROR_PORT: &str = "mon0";
const ANALYSER_PORT: &str = "an0";
/// Whole super-packets leave the port; their outer packets are what it takes.
const MTU: u32 = 9000;

/// `mirror_cost_share`: everything, mirrored to a port, in VXLAN, in ERSPAN type I, with and
/// without a filter that takes everything, by the kernel; in ERSPAN type II, and no more of each
/// packet than so much, by the gateway.
pub(super) fn mirror(options: &Options) -> Result<Vec<Figure>> {
    let tunnel = |form: &str| {
        format!(
            "encapsulation = \"{form}\"\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.9\"\n\
             remote_mac = \"02:00:00:00:00:09\"\n"
        )
    };
    let filter = "filter = \"ip or arp\"\n";
    [
        ("mirror_cost_share_port", String::new()),
        ("mirror_cost_share_vxlan", tunnel("vxlan")),
        ("mirror_cost_share_filter_port", filter.to_owned()),
        ("mirror_cost_share_filter_vxlan", filter.to_owned() + &tunnel("vxlan")),
        ("mirror_cost_share_erspan", tunnel("erspan1")),
        ("mirror_cost_share_numbered_erspan", tunnel("erspan2")),
        ("mirror_cost_share_snap", "snap = 65535\n".to_owned()),
    ]
    .into_iter()
    .map(|(name, more)| {
        let table = format!("\n[[mirror]]\nname = \"all\"\nport = \"{MIRROR_PORT}\"\n{more}");
        share(options, name, &table, "everything mirrored, nobody reads the copies")
    })
    .collect()
}

/// `evidence_cost_share`: as it is unless configured, and whole packets.
pub(super) fn evidence(options: &Options) -> Result<Vec<Figure>> {
    [
        ("evidence_cost_share", "", "64 MiB, the first 384 bytes of each packet"),
        ("evidence_cost_share_whole", "snap = 0\n", "64 MiB, whole packets"),
    ]
    .into_iter()
    .map(|(name, more, what)| {
        share(options, name, &format!("\n[evidence]\nmemory_mib = 64\n{more}"), what)
    })
    .collect()
}

fn share(options: &Options, name: &str, table: &str, what: &str) -> Result<Figure> {
    let plain = Route::weir(options, Protection::Plain)?;
    let lab = Lab::build(Plan::default())?;
    let analyser = Namespace::create(&format!("weir-analyser-{}", std::process::id()))?;
    lab.gateway(Side::A).ip(&format!(
        "link add {MIRROR_PORT} mtu {MTU} type veth peer {ANALYSER_PORT} mtu {MTU} netns {}\n\
         link set {MIRROR_PORT} up",
        analyser.name()
    ))?;
    analyser.ip(&format!("link set {ANALYSER_PORT} up"))?;
    let setup =
        Setup { driver: options.driver.clone(), ..Setup::new(&options.program, Protection::Plain) };
    let [watched, other] = configurations(&lab, &setup)?;
    let gateways = Gateways::start_configured(&lab, &setup, &[watched + table, other])?;
    let route = Route { lab, gateways: Some(gateways), _tunnel: None };
    let figure = share_of_tcp(options, name, &route, &plain, what)?;
    let gateways = route.gateways.as_ref().context("its gateways are there")?;
    let status = gateways.status(Side::A)?;
    Ok(match &status["pairs"][0]["mirrors"][0] {
        Value::Null => figure,
        mirror => {
            let [mirrored, dropped] = ["mirrored", "dropped"].map(|count| &mirror[count]);
            let who = if mirror["by_kernel"] == true { "kernel" } else { "gateway" };
            figure.noted(&format!("{mirrored} copies by the {who}, {dropped} more dropped"))
        }
    })
}
