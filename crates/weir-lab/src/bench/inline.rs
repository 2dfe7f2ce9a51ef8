//! Rules inline, between a host and the wire: Weir beside a real Suricata that copies from port to
//! port by AF_PACKET, with the same rules.
//!
//! ```text
//!   host A -- [ Weir | Suricata ] -- wire -- bridge -- host B
//! ```

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::detecting::{JUDGED, RULES, joined};
use super::{Figure, Options, Samples, rounded};
use crate::gateways::{Protection, Setup, configurations, configure};
use crate::process::{self, Running};
use crate::suricata::Suricata;
use crate::topology::{HOST_DEVICE, HOST_PORT, Lab, Plan, Side, WIRE_PORT};
use crate::traffic::iperf::{self, Extent};
use crate::traffic::ping::ping;
use crate::{interrupt, netns::Namespace};

/// What stands between host and wire.
enum Between {
    Bridge,
    Suricata,
    /// So many workers, each of which takes its flows both ways; whether the kernel joins TCP
    /// segments at the ports (GRO), as it does at an adapter's unless told otherwise.
    Weir {
        workers: u16,
        gro: bool,
    },
}

/// Those that are measured, in turn.
const BETWEEN: [Between; 5] = [
    Between::Bridge,
    Between::Suricata,
    Between::Weir { workers: 2, gro: true },
    Between::Weir { workers: 1, gro: true },
    Between::Weir { workers: 2, gro: false },
];

/// Loading 30,000 rules takes Suricata 12 s, on a quiet machine.
const START: Duration = Duration::from_secs(120);
/// Flows of one run, eight at a time; a run takes a tenth of a second, so several are made.
const HTTP_FLOWS: u32 = 200;
const HTTP_RUNS: usize = 9;
const HTTP_BODY: usize = 16_384;
/// Suricata was measured so; jumbo frames would be to our favour.
const MTU: u32 = 1500;

/// Answers each connection's request with 16 KiB, and ends it. `{}`: a folder.
const HTTP_SERVER: &str = "\
daemon off; master_process off; error_log stderr; pid {}/nginx.pid;
events { worker_connections 512; }
http {
    access_log off; keepalive_timeout 0; default_type text/plain;
    client_body_temp_path {}; proxy_temp_path {}; fastcgi_temp_path {}; uwsgi_temp_path {};
    scgi_temp_path {};
    server { listen 80; root {}; }
}
";

/// One TCP stream and short HTTP flows, inline, beside Suricata.
pub(super) fn beside_suricata(options: &Options) -> Result<Vec<Figure>> {
    process::require(&["iperf3", "ethtool", "nginx", "ab"])?;
    let text = joined(Path::new(RULES))?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("all.rules"), &text)?;
    let judged = Path::new(JUDGED);
    let classes = Path::new(RULES).join("et-open-2025-09/classification.config");
    let suricata = Suricata::with(&text, &judged.join("suricata.yaml"), &classes)?;
    let (mut stream, mut http): ([Samples; 5], [Samples; 5]) = Default::default();
    let mut whole = Samples::default();
    for _ in 0..options.rounds(3) {
        // One of them at a time: the other's load would cost it processor time.
        for (index, between) in BETWEEN.iter().enumerate() {
            let lab = lab()?;
            let running = match between {
                Between::Bridge => bridge(&lab, Side::A).map(|()| None)?,
                Between::Suricata => {
                    let configuration = judged.join("suricata-ips.yaml");
                    let gateway = lab.gateway(Side::A);
                    Some(suricata.inline(gateway, &configuration, HOST_PORT, WIRE_PORT)?)
                }
                Between::Weir { workers, .. } => {
                    Some(weir(options, &lab, folder.path(), *workers)?)
                }
            };
            offloads(&lab, "off")?;
            if matches!(between, Between::Weir { gro: true, .. }) {
                for port in [HOST_PORT, WIRE_PORT] {
                    lab.gateway(Side::A).run(&format!("ethtool -K {port} gro on"))?;
                }
            }
            wait_until_it_flows(&lab, running.as_ref())?;
            stream[index].0.push(tcp(options, &lab)?);
            http[index].0.push(flows_per_second(&lab)?);
            if matches!(between, Between::Weir { workers: 1, .. }) {
                offloads(&lab, "on")?;
                whole.0.push(tcp(options, &lab)?);
            }
        }
    }
    let name = suricata.name();
    let figure = |figure, unit, samples: &[Samples; 5], more: &str| {
        let [bare, theirs, ours, one, split] = samples;
        let note = format!(
            "MTU {MTU}, all of ../shared/rules, two threads each, offloads off at both hosts, GRO \
             on at Weir's ports (Suricata turns it off at its own); with GRO off {}, one worker \
             {}, a bridge in its place {}{more}",
            rounded(split.median()),
            rounded(one.median()),
            rounded(bare.median())
        );
        Figure::new(figure, unit, ours).against(&name, theirs).noted(&note)
    };
    let flows = format!("; {HTTP_FLOWS} flows of 16 KiB, eight at a time, by ab to nginx");
    Ok(vec![
        figure("ips_vs_suricata_stream", "Gb/s", &stream, ""),
        figure("ips_vs_suricata_http", "flows/s", &http, &flows),
        Figure::new("ips_stream_super_packets_gbps", "Gb/s", &whole)
            .noted("one worker, with segmentation offload on at the hosts"),
    ])
}

/// Empty at gateway A, a bridge in the place of gateway B.
fn lab() -> Result<Lab> {
    let lab = Lab::build(Plan { host_mtu: MTU, wire_mtu: MTU, ..Plan::default() })?;
    bridge(&lab, Side::B)?;
    Ok(lab)
}

/// Joins both ports of a gateway: what the path gives without anybody who looks.
fn bridge(lab: &Lab, side: Side) -> Result<()> {
    lab.gateway(side).ip(&format!(
        "link add br0 type bridge\n\
         link set {HOST_PORT} master br0\n\
         link set {WIRE_PORT} master br0\n\
         link set br0 up"
    ))?;
    // A bridge is no firewall, whatever the machine has loaded: who receives there does so on the
    // time of who sends, which is what is measured.
    for family in ["iptables", "ip6tables"] {
        let key = format!("net.bridge.bridge-nf-call-{family}");
        if Path::new(&format!("/proc/sys/{}", key.replace('.', "/"))).exists() {
            lab.gateway(side).set(&[(&key, "0")])?;
        }
    }
    Ok(())
}

fn weir(options: &Options, lab: &Lab, rules: &Path, workers: u16) -> Result<Running> {
    fs::create_dir_all(lab.folder().join("state"))?;
    let table = format!("\n[rules]\npaths = [{:?}]\n", rules.display().to_string());
    let setup = Setup {
        tables_of_a: table
            + &format!("eve = {:?}\neve_records = false\n", lab.folder().join("eve").display()),
        pair_lines: format!("workers = {workers}\n"),
        driver: options.driver.clone(),
        ..Setup::new(&options.program, Protection::Plain)
    };
    let file = configure(lab, Side::A, &configurations(lab, &setup)?[Side::A.index()])?;
    let program = options.program.display().to_string();
    Running::start(lab.gateway(Side::A).command(&program).arg("up").arg(file))
}

fn offloads(lab: &Lab, state: &str) -> Result<()> {
    let set = |namespace: &Namespace, device: &str| -> Result<()> {
        let kinds = ["tso", "gso", "gro", "tx", "rx"].map(|kind| format!("{kind} {state}"));
        namespace.run(&format!("ethtool -K {device} {}", kinds.join(" ")))?;
        Ok(())
    };
    for side in Side::BOTH {
        set(lab.host(side), HOST_DEVICE)?;
        set(lab.gateway(side), HOST_PORT)?;
    }
    Ok(())
}

fn wait_until_it_flows(lab: &Lab, running: Option<&Running>) -> Result<()> {
    let to = lab.host_v4(Side::B).to_string();
    interrupt::until("packets through the gateway", START, || {
        Ok(ping(lab.host(Side::A), &to, 1, 56).is_ok_and(|it| it.answered == 1))
    })
    .with_context(|| running.map(Running::stderr).unwrap_or_default())
}

fn tcp(options: &Options, lab: &Lab) -> Result<f64> {
    let extent = Extent::Seconds(options.tcp_seconds());
    let address = lab.host_v4(Side::B).into();
    Ok(iperf::tcp(lab.host(Side::A), lab.host(Side::B), address, extent)?.gbps)
}

fn flows_per_second(lab: &Lab) -> Result<f64> {
    let root = lab.folder().join("http");
    fs::create_dir_all(&root)?;
    fs::write(root.join("page"), [b'x'; HTTP_BODY])?;
    let file = root.join("nginx.conf");
    fs::write(&file, HTTP_SERVER.replace("{}", &root.display().to_string()))?;
    let mut server = lab.host(Side::B).command("nginx");
    let server = Running::start(server.arg("-p").arg(&root).arg("-c").arg(&file))?;
    let (to, flows) = (lab.host_v4(Side::B), HTTP_FLOWS.to_string());
    let url = format!("http://{to}/page");
    interrupt::until("a page by nginx", Duration::from_secs(10), || {
        let one = lab.host(Side::A).command("ab").args(["-q", "-n", "1", &url]).output()?;
        Ok(one.status.success())
    })
    .with_context(|| server.stderr())?;
    let mut samples = Samples::default();
    for _ in 0..HTTP_RUNS {
        let mut client = lab.host(Side::A).command("ab");
        client.args(["-q", "-c", "8", "-n", &flows, &url]);
        let said = process::run(&mut client, Duration::from_secs(60))?.stdout;
        ensure!(field(&said, "Failed requests:") == Some(0.0), "{said}{}", server.stderr());
        samples.0.push(field(&said, "Requests per second:").context("no rate by ab")?);
    }
    Ok(samples.median())
}

/// The number that `ab` prints behind a name.
fn field(said: &str, name: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
