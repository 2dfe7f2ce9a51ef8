//! Rules inline, between a host and the wire: Weir beside a real Suricata that copies from port to
//! port by AF_PACKET, with the same rules.
//!
//! ```text
//!   host A -- [ Weir | Suricata ] -- wire -- bridge -- host B
//! ```

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::detecting::{JUDGED, RULES, joined};
use super::{Figure, Options, Samples};
use crate::gateways::{Protection, Setup, configurations, configure};
use crate::process::{self, Running};
use crate::suricata::Suricata;
use crate::topology::{HOST_DEVICE, HOST_PORT, Lab, Plan, Side, WIRE_PORT};
use crate::traffic::iperf::{self, Extent};
use crate::traffic::ping::ping;
use crate::{interrupt, netns::Namespace};

/// Loading 30,000 rules takes Suricata 12 s, on a quiet machine.
const START: Duration = Duration::from_secs(120);
const HTTP_FLOWS: u32 = 200;
/// Suricata was measured so; jumbo frames would be to our favour.
const MTU: u32 = 1500;

/// Answers each connection's request with 16 KiB, and ends it.
const HTTP_SERVER: &str = "\
import asyncio
body = b'x' * 16384
answer = (b'HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nConnection: close\\r\\n'
          b'Content-Length: 16384\\r\\n\\r\\n' + body)
async def serve(reader, writer):
    await reader.readuntil(b'\\r\\n\\r\\n')
    writer.write(answer)
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '0.0.0.0', 80, backlog=512)
    print('listening', flush=True)
    await server.serve_forever()
asyncio.run(main())
";

/// So many flows, eight at a time; prints the seconds that they took.
const HTTP_CLIENT: &str = "\
import asyncio, sys, time
async def get(address, number):
    reader, writer = await asyncio.open_connection(address, 80)
    writer.write(b'GET /page/%d HTTP/1.1\\r\\nHost: www.example.org\\r\\n'
                 b'User-Agent: weir-lab\\r\\n\\r\\n' % number)
    answer = await reader.read(-1)
    assert len(answer) > 16384, len(answer)
    writer.close()
async def main(address, count):
    places = asyncio.Semaphore(8)
    async def one(number):
        async with places:
            await get(address, number)
    begun = time.monotonic()
    await asyncio.gather(*(one(number) for number in range(count)))
    print(time.monotonic() - begun)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
";

/// One TCP stream and short HTTP flows, inline, beside Suricata.
pub(super) fn beside_suricata(options: &Options) -> Result<Vec<Figure>> {
    process::require(&["iperf3", "ethtool", "python3"])?;
    let text = joined(Path::new(RULES))?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("all.rules"), &text)?;
    let judged = Path::new(JUDGED);
    let classes = Path::new(RULES).join("et-open-2025-09/classification.config");
    let suricata = Suricata::with(&text, &judged.join("suricata.yaml"), &classes)?;
    let (mut stream, mut http): ([Samples; 2], [Samples; 2]) = Default::default();
    let mut whole = Samples::default();
    for _ in 0..options.rounds(3) {
        // One of them at a time: the other's load would cost it processor time.
        for ours in [false, true] {
            let lab = lab()?;
            let running = match ours {
                true => weir(options, &lab, folder.path())?,
                false => {
                    let configuration = judged.join("suricata-ips.yaml");
                    suricata.inline(lab.gateway(Side::A), &configuration, HOST_PORT, WIRE_PORT)?
                }
            };
            offloads(&lab, "off")?;
            wait_until_it_flows(&lab, &running)?;
            stream[usize::from(ours)].0.push(tcp(options, &lab)?);
            http[usize::from(ours)].0.push(flows_per_second(&lab)?);
            if ours {
                offloads(&lab, "on")?;
                whole.0.push(tcp(options, &lab)?);
            }
        }
    }
    let ([their_stream, our_stream], [their_http, our_http]) = (stream, http);
    let name = suricata.name();
    let note = format!("MTU {MTU}, all of ../shared/rules, offloads off at all ends");
    let figure = |figure, unit, ours: &Samples, theirs: &Samples| {
        Figure::new(figure, unit, ours).against(&name, theirs).noted(&note)
    };
    Ok(vec![
        figure("ips_vs_suricata_stream", "Gb/s", &our_stream, &their_stream),
        figure("ips_vs_suricata_http", "flows/s", &our_http, &their_http)
            .noted(&format!("{HTTP_FLOWS} flows of 16 KiB, eight at a time")),
        Figure::new("ips_stream_super_packets_gbps", "Gb/s", &whole)
            .noted("the same with segmentation offload on at the hosts"),
    ])
}

/// Empty at gateway A, a bridge in the place of gateway B.
fn lab() -> Result<Lab> {
    let lab = Lab::build(Plan { host_mtu: MTU, wire_mtu: MTU, ..Plan::default() })?;
    lab.gateway(Side::B).ip(&format!(
        "link add br0 type bridge\n\
         link set {HOST_PORT} master br0\n\
         link set {WIRE_PORT} master br0\n\
         link set br0 up"
    ))?;
    // The wire is no firewall, whatever the machine has loaded: who receives there does so on the
    // time of who sends, which is what is measured.
    for family in ["iptables", "ip6tables"] {
        let key = format!("net.bridge.bridge-nf-call-{family}");
        if Path::new(&format!("/proc/sys/{}", key.replace('.', "/"))).exists() {
            lab.gateway(Side::B).set(&[(&key, "0")])?;
        }
    }
    Ok(lab)
}

fn weir(options: &Options, lab: &Lab, rules: &Path) -> Result<Running> {
    fs::create_dir_all(lab.folder().join("state"))?;
    let table = format!("\n[rules]\npaths = [{:?}]\n", rules.display().to_string());
    let setup = Setup {
        tables_of_a: table + &format!("eve = {:?}\n", lab.folder().join("eve").display()),
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

fn wait_until_it_flows(lab: &Lab, running: &Running) -> Result<()> {
    let to = lab.host_v4(Side::B).to_string();
    interrupt::until("packets through the gateway", START, || {
        Ok(ping(lab.host(Side::A), &to, 1, 56).is_ok_and(|it| it.answered == 1))
    })
    .with_context(|| running.stderr())
}

fn tcp(options: &Options, lab: &Lab) -> Result<f64> {
    let extent = Extent::Seconds(options.tcp_seconds());
    let address = lab.host_v4(Side::B).into();
    Ok(iperf::tcp(lab.host(Side::A), lab.host(Side::B), address, extent)?.gbps)
}

fn flows_per_second(lab: &Lab) -> Result<f64> {
    let patience = Duration::from_secs(60);
    let mut server = lab.host(Side::B).command("python3");
    let mut server = Running::start(server.args(["-c", HTTP_SERVER]))?;
    server.wait_for("listening", Duration::from_secs(10))?;
    let mut client = lab.host(Side::A).command("python3");
    let (to, count) = (lab.host_v4(Side::B).to_string(), HTTP_FLOWS.to_string());
    client.args(["-c", HTTP_CLIENT, &to, &count]);
    let begun = Instant::now();
    let finished = process::run(&mut client, patience)?;
    let seconds = finished.stdout.trim().parse().unwrap_or(begun.elapsed().as_secs_f64());
    Ok(f64::from(HTTP_FLOWS) / seconds)
}
