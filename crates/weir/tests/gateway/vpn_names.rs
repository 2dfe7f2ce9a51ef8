//! VPN clients by name: lines of access that are about one, what is told of them, and where each
//! may send.

use std::net::Ipv4Addr;

use weir_lab::netns::Namespace;
use weir_lab::vpn::{Client, Concentrator};

use super::*;

/// A lab with a gateway for clients, or word that there is none.
fn concentrator(test: &str, tables: &str) -> Option<(Stand, Concentrator)> {
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg", "python3"])) {
        eprintln!("SKIPPED: {test}: {missing}");
        return None;
    }
    let stand = stand(test)?;
    let gateway = Concentrator::start_with(&stand.lab, WEIR.as_ref(), "", tables).unwrap();
    Some((stand, gateway))
}

fn reaches(from: &Namespace, target: &str) {
    let answered = || Ok(ping(from, target, 1, 56)?.answered > 0);
    interrupt::until("answer through the tunnel", PATIENCE, answered).unwrap();
}

fn shown(gateway: &Concentrator, name: &str) -> Value {
    let said = gateway.vpn("show", &[name, "--json"]).unwrap().stdout;
    serde_json::from_str(&said).unwrap()
}

/// An RC RDMA WRITE ONLY to queue pair 0x1a2b, with a wrong ICRC; `argv`: by which device, whom to,
/// how many.
const WRITES: &str = "\
import socket, struct, sys
device, to, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
s.bind(('', 49152))
for psn in range(count):
    bth = struct.pack('>BBHII', 0x0a, 0, 0xffff, 0x1a2b, 0x80000000 | psn)
    reth = struct.pack('>QII', 0x10000, 0x77, 16)
    s.sendto(bth + reth + b'w' * 16 + b'icrc', (to, 4791))
";

fn write(lab: &Lab, client: &Client, to: Ipv4Addr, count: usize) {
    let mut command = Client::namespace(lab).command("python3");
    command.args(["-c", WRITES, client.port(), &to.to_string(), &count.to_string()]);
    process::run(&mut command, PATIENCE).unwrap();
}

#[test]
fn a_line_about_a_client_by_name_stops_it_alone_and_all_that_is_told_names_it() {
    let test = "a_line_about_a_client_by_name";
    let name = format!("vpn-names-{}.json", std::process::id());
    let eve = std::env::temp_dir().join(name);
    let rules = eve.with_extension("rules");
    std::fs::write(&rules, "alert tcp any any -> any 9 (msg:\"none\"; sid:1;)\n").unwrap();
    // A client that is not there yet stands for nobody.
    let tables = format!(
        "\n[[access]]\nname = \"laptop-writes-nothing\"\nfrom = \"peer:laptop\"\n\
         operations = \"write\"\naction = \"deny\"\n\n[rules]\npaths = [\"{}\"]\n\
         eve = \"{}\"\n\n[store]\nsize_mib = 16\n",
        rules.display(),
        eve.display()
    );
    let Some((stand, mut gateway)) = concentrator(test, &tables) else { return };
    let (lab, own) = (&stand.lab, stand.lab.host_v4(Side::A));
    let clients = ["laptop", "phone"].map(|it| gateway.add(it).unwrap());
    let laptop = Client::start(lab, 0, &clients[0]).unwrap();
    let phone = Client::start(lab, 1, &clients[1]).unwrap();
    for client in [&laptop, &phone] {
        let ping = format!("ping -c 1 -W 1 -I {} {own}", client.port());
        let answered = || Ok(Client::namespace(lab).run(&ping).is_ok());
        interrupt::until("answer through the tunnel", PATIENCE, answered).unwrap();
    }
    write(lab, &laptop, own, 7);
    write(lab, &phone, own, 5);
    let hits = || -> Value {
        let mut command = Command::new(WEIR);
        command.args(["access", "hits", "--gateway", "gw-a", "--json", "--run-dir"]);
        command.arg(weir_lab::gateways::run_folder(lab, Side::A));
        serde_json::from_str(&process::run(&mut command, PATIENCE).unwrap().stdout).unwrap()
    };
    interrupt::until("judgement of all writes", PATIENCE, || {
        let hits = hits();
        let allowed = number(&hits, "/pairs/0/default_messages");
        Ok(number(&hits, "/pairs/0/lines/0/messages") == 7 && allowed == 5)
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#}", hits()));
    let hits = hits();
    assert_eq!(hits["pairs"][0]["lines"][0]["from"], "peer:laptop", "{hits:#}");
    // Revoked, it is nobody again; the line that names it is no obstacle.
    let revoked = gateway.vpn("revoke", &["laptop", "--json"]).unwrap().stdout;
    let revoked: Value = serde_json::from_str(&revoked).unwrap();
    assert_eq!(revoked["in_force"], true);
    gateway.daemon().signal(Signal::TERM).unwrap();
    let daemon = gateway.daemon();
    interrupt::until("its end", PATIENCE, || Ok(!daemon.is_running()?)).unwrap();

    assert_told_of_the_laptop(&eve);
    [&eve, &rules].iter().for_each(|it| std::fs::remove_file(it).unwrap());
    let read = |what: &str| -> Value {
        let mut command = Command::new(WEIR);
        command.args([what, "--json", "--store"]).arg(lab.folder().join("state-vpn").join("store"));
        serde_json::from_str(&process::run(&mut command, PATIENCE).unwrap().stdout).unwrap()
    };
    let alerts = read("alerts");
    assert_eq!(alerts[0]["event"]["src_peer"], "laptop", "{alerts:#}");
    // The queue pair that was written to, by the client that was let through.
    let conversations = read("conversations");
    let of_phone = conversations
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["destination_qp"] == 0x1a2b && it["source"] == phone.address());
    let of_phone = of_phone.unwrap_or_else(|| panic!("{conversations:#}"));
    assert_eq!(of_phone["source_peer"], "phone", "{of_phone:#}");
    assert_eq!(of_phone.get("destination_peer"), None, "{of_phone:#}");
}

/// Each alert in EVE is of the line, and names whom it is about.
fn assert_told_of_the_laptop(eve: &std::path::Path) {
    let text = std::fs::read_to_string(eve).unwrap();
    let events: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let denied: Vec<&Value> = events.iter().filter(|it| it["event_type"] == "alert").collect();
    assert!(!denied.is_empty(), "{text}");
    for event in denied {
        assert_eq!(event["access"]["line"], "laptop-writes-nothing", "{event:#}");
        assert_eq!(event["src_peer"], "laptop", "{event:#}");
    }
}

/// Datagrams to a port that nobody listens on; how many the host refused.
const DATAGRAMS: &str = "\
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
s.connect((sys.argv[1], int(sys.argv[2])))
refused = 0
for _ in range(5):
    try:
        s.send(b'?')
        s.recv(1)
    except ConnectionRefusedError:
        refused += 1
    except socket.timeout:
        pass
print(refused)
";

#[test]
fn a_client_with_a_list_of_access_reaches_what_is_on_it_and_nothing_else() {
    let test = "a_client_with_a_list_of_access";
    let Some((stand, gateway)) = concentrator(test, "") else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let list = [format!("{host},icmp"), format!("{host},udp/4000-4001")];
    let arguments = ["laptop", "--reach", &list[0], "--reach", &list[1]];
    let client = Client::start(lab, 0, &gateway.vpn("add", &arguments).unwrap().stdout).unwrap();
    let namespace = Client::namespace(lab);
    reaches(namespace, &host);
    let refused_at = |port: &str| -> usize {
        let mut command = namespace.command("python3");
        command.args(["-c", DATAGRAMS, &host, port]);
        process::run(&mut command, PATIENCE).unwrap().stdout.trim().parse().unwrap()
    };
    assert!(refused_at("4001") > 0, "the host's own word comes back");
    assert_eq!(refused_at("4002"), 0, "a port that is not on the list");
    let denied = || number(&shown(&gateway, "laptop"), "/counters/denied_packets");
    interrupt::until("count of what was denied", PATIENCE, || Ok(denied() == 5)).unwrap();
    let status = gateway.status().unwrap();
    assert_eq!(number(&status, "/pairs/0/wire/dropped_by_reason/peer_reach"), 5, "{status:#}");
    let text = gateway.vpn("show", &["laptop"]).unwrap().stdout;
    assert!(
        text.contains(&format!("may reach   {host}/32,icmp {host}/32,udp/4000-4001")),
        "{text}"
    );

    let session = client.wg(lab, "latest-handshakes").unwrap();
    gateway.vpn("reach", &["laptop", "any"]).unwrap();
    assert!(refused_at("4002") > 0);
    gateway.vpn("reach", &["laptop", "10.200.0.0/16"]).unwrap();
    assert_eq!(ping(namespace, &host, 3, 56).unwrap().answered, 0);
    let wrong = gateway.vpn("reach", &["laptop", "10.200.0.0/16,http"]).unwrap_err().to_string();
    assert!(wrong.contains("no protocol"), "{wrong}");
    assert_eq!(client.wg(lab, "latest-handshakes").unwrap(), session, "no new handshake");
}

#[test]
fn a_client_whose_time_is_over_is_cut_off_then_and_not_before() {
    let test = "a_client_whose_time_is_over";
    let Some((stand, gateway)) = concentrator(test, "") else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let _guest = Client::start(lab, 0, &gateway.add("guest").unwrap()).unwrap();
    reaches(Client::namespace(lab), &host);
    let file = lab.folder().join("clients").join("guest.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    std::fs::write(&file, format!("expires = \"{expires}\"\n{text}")).unwrap();
    let mut reload = Command::new(WEIR);
    reload.args(["reload", "gw-a", "--run-dir"]);
    reload.arg(weir_lab::gateways::run_folder(lab, Side::A));
    process::run(&mut reload, PATIENCE).unwrap();
    // However late this test is: what was seen after it was cut off was seen after its time.
    interrupt::until("end of its time", PATIENCE, || {
        let status = gateway.status()?;
        let is_there = status.pointer("/pairs/0/peers/0/name").is_some_and(|it| it == "guest");
        let seen = i128::from(number(&status, "/taken_ns"));
        assert!(is_there || seen >= expires.as_nanosecond(), "too early: {status:#}");
        Ok(!is_there)
    })
    .unwrap();
    assert_eq!(ping(Client::namespace(lab), &host, 3, 56).unwrap().answered, 0);
}
