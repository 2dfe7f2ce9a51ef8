//! Standard WireGuard clients end on a gateway: wireguard-go is the judge.

use weir_lab::netns::Namespace;
use weir_lab::topology::HOST_DEVICE;
use weir_lab::traffic::iperf::{self, Extent};
use weir_lab::vpn::{Client, Concentrator, POOL, POOL_V6, PORT};
use weir_lab::vpn_end::Tunnelled;

use super::*;

/// A lab with a gateway for clients, or word that there is none.
fn concentrator(test: &str) -> Option<(Stand, Concentrator)> {
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg"])) {
        eprintln!("SKIPPED: {test}: {missing}");
        return None;
    }
    let stand = stand(test)?;
    let gateway = Concentrator::start(&stand.lab, WEIR.as_ref(), "").unwrap();
    Some((stand, gateway))
}

fn reaches(from: &Namespace, target: &str) {
    let answered = || Ok(ping(from, target, 1, 56)?.answered > 0);
    interrupt::until("answer through the tunnel", PATIENCE, answered).unwrap();
}

#[test]
fn a_standard_client_and_the_host_reach_each_other_and_the_wire_shows_nothing_in_clear() {
    let test = "a_standard_client_and_the_host_reach_each_other";
    let Some((stand, gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let wire = listen(lab, 0);
    let client = Client::start(lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    let host = lab.host_v4(Side::A).to_string();
    reaches(Client::namespace(lab), &host);
    let sent = ping_all(Client::namespace(lab), &host, 20, 1200).unwrap();
    assert_eq!(sent.answered, 20);
    // The host finds the client by ARP, as any neighbour.
    let back = ping_all(lab.host(Side::A), client.address(), 20, 56).unwrap();
    assert_eq!(back.answered, 20);
    let wire = wire.stop().unwrap();
    let sealed = format!("udp port {PORT}");
    assert!(wire.count(&sealed).unwrap() > 80, "the tunnel's packets");
    // The host and the client's kernel seek neighbours in clear.
    let clear = format!("ip and not ({sealed})");
    assert_eq!(wire.count(&clear).unwrap(), 0, "packets in clear");
    assert!(!wire.contains(PING_MARK).unwrap());
    let handshakes = client.wg(lab, "latest-handshakes").unwrap();
    assert!(!handshakes.trim().ends_with("\t0"), "{handshakes}");
    let status = gateway.status().unwrap();
    let peer = &status["pairs"][0]["peers"][0];
    assert_eq!(peer["name"], "laptop");
    assert!(number(peer, "/opened_packets") >= 40, "{peer:#}");
}

#[test]
fn clients_come_and_go_while_others_stay_and_a_revoked_one_is_cut() {
    let test = "clients_come_and_go_while_others_stay";
    let Some((stand, gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let first = Client::start(lab, 0, &gateway.add("first").unwrap()).unwrap();
    reaches(Client::namespace(lab), &host);
    let refused = gateway.add("first").unwrap_err().to_string();
    assert!(refused.contains("already"), "{refused}");
    // Without a configuration it is the running gateway's.
    let of_the_running_one = |words: &[&str]| {
        let mut command = Command::new(WEIR);
        let run_dir = weir_lab::gateways::run_folder(lab, Side::A);
        command.arg("vpn").args(words).arg("--run-dir").arg(run_dir);
        process::run(&mut command, PATIENCE).unwrap().stdout
    };
    let second = of_the_running_one(&["add", "second"]);
    assert!(of_the_running_one(&["list"]).contains("second"));
    of_the_running_one(&["limit", "second", "2G"]);
    assert!(of_the_running_one(&["show", "second"]).contains("2Gbit/s"));
    assert!(second.contains("Address = 10.99.0.3/32, fd99::3/128"), "{second}");
    let listed = gateway.vpn("list", &["--json"]).unwrap().stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    // The first one's session outlives the reloads.
    let sent = ping_all(Client::namespace(lab), &host, 5, 56).unwrap();
    assert_eq!(sent.answered, 5);
    let handshake = first.wg(lab, "latest-handshakes").unwrap();
    gateway.vpn("revoke", &["second"]).unwrap();
    assert_eq!(ping_all(Client::namespace(lab), &host, 5, 56).unwrap().answered, 5);
    assert_eq!(first.wg(lab, "latest-handshakes").unwrap(), handshake, "no new handshake");
    gateway.vpn("revoke", &["first"]).unwrap();
    assert_eq!(ping(Client::namespace(lab), &host, 3, 56).unwrap().answered, 0);
}

#[test]
fn a_client_reaches_the_host_again_after_the_gateway_was_killed() {
    let test = "a_client_reaches_the_host_again_after_the_gateway_was_killed";
    let Some((stand, mut gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let _client = Client::start(lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    reaches(Client::namespace(lab), &host);
    gateway.daemon().signal(Signal::KILL).unwrap();
    let daemon = gateway.daemon();
    interrupt::until("its end", PATIENCE, || Ok(!daemon.is_running()?)).unwrap();
    gateway.start_again(lab).unwrap();
    // wireguard-go notices after 15 s without an answer, and makes new keys.
    interrupt::until("answer through the tunnel", 2 * PATIENCE, || {
        Ok(ping(Client::namespace(lab), &host, 1, 56)?.answered > 0)
    })
    .unwrap();
}

#[test]
fn a_client_is_shown_gets_new_keys_and_ends_with_its_time() {
    let test = "a_client_is_shown_gets_new_keys";
    let Some((stand, gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let json = |verb: &str, more: &[&str]| -> Value {
        let said = gateway.vpn(verb, more).unwrap().stdout;
        serde_json::from_str(&said).unwrap()
    };
    let before = gateway.add("laptop").unwrap();
    let client = Client::start(lab, 0, &before).unwrap();
    reaches(Client::namespace(lab), &host);
    let shown = json("show", &["laptop", "--json"]);
    assert_eq!(shown["name"], "laptop");
    assert!(number(&shown, "/counters/received_packets") > 0, "{shown:#}");
    assert!(shown["counters"]["last_handshake_seconds"].as_f64().unwrap() < 60.0, "{shown:#}");
    let text = gateway.vpn("show", &["laptop"]).unwrap().stdout;
    assert!(text.contains("expires     when it is revoked"), "{text}");

    // What is not its own does not pass, and is counted under its name.
    let foreign = "10.99.0.200";
    let namespace = Client::namespace(lab);
    namespace.ip(&format!("addr add {foreign}/32 dev {}\n", client.port())).unwrap();
    assert!(namespace.run(&format!("ping -c 3 -i 0.2 -W 1 -I {foreign} {host}")).is_err());
    let refused = || number(&json("show", &["laptop", "--json"]), "/counters/refused_packets");
    interrupt::until("count of what it may not send", PATIENCE, || Ok(refused() >= 3)).unwrap();

    let rotated = json("rotate", &["laptop", "--json"]);
    let after = rotated["config"].as_str().unwrap();
    assert_eq!(rotated["addresses"], shown["addresses"]);
    assert_ne!(rotated["public_key"], shown["public_key"]);
    assert_eq!(ping(Client::namespace(lab), &host, 3, 56).unwrap().answered, 0, "old keys");
    drop(client);
    let client = Client::start(lab, 1, after).unwrap();
    reaches(Client::namespace(lab), &host);
    drop(client);

    let guest = json("add", &["guest", "--expires", "8s", "--json"]);
    assert!(guest["expires"].as_str().unwrap().ends_with('Z'), "{guest:#}");
    let _guest = Client::start(lab, 2, guest["config"].as_str().unwrap()).unwrap();
    // Time passes while a configuration is on trial, too.
    let run_dir = weir_lab::gateways::run_folder(lab, Side::A);
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(arguments).arg("--run-dir").arg(&run_dir);
        process::run(&mut command, PATIENCE).unwrap()
    };
    weir(&["reload", "gw-a", "--confirm-within", "10m", "--no-wait"]);
    let is_cut = || Ok(gateway.status()?["pairs"][0]["peers"].as_array().map(Vec::len) == Some(1));
    interrupt::until("end of the guest's time", PATIENCE, is_cut).unwrap();
    assert_eq!(ping(Client::namespace(lab), &host, 3, 56).unwrap().answered, 0);
    assert_eq!(json("list", &["--json"]).as_array().map(Vec::len), Some(2), "until revoked");
    let refused = gateway.vpn("add", &["late", "--expires", "2020-01-01T00:00:00Z"]);
    assert!(refused.unwrap_err().to_string().contains("over already"));
    weir(&["confirm", "gw-a"]);
    let phone = json("add", &["phone", "--route", "10.1.0.0/16", "--dns", "10.0.0.53", "--json"]);
    for config in [&phone, &json("rotate", &["phone", "--json"])] {
        let config = config["config"].as_str().unwrap();
        assert!(config.contains("AllowedIPs = 10.1.0.0/16\n"), "{config}");
        assert!(config.contains("DNS = 10.0.0.53\n"), "{config}");
    }
    let code = gateway.vpn("rotate", &["laptop", "--qr"]).unwrap().stdout;
    assert!(code.contains('\u{2588}') && code.contains("PrivateKey"), "{code}");
}

#[test]
fn a_client_has_both_families_and_by_ipv6_it_and_the_host_reach_each_other() {
    let test = "a_client_has_both_families";
    let Some((stand, gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let client = Client::start(lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    let host = lab.host(Side::A);
    // The gateway answers no neighbour solicitation: the host's route is by a router, which is it.
    let router = "fd77::fe";
    host.ip(&format!(
        "neigh add {router} lladdr 02:77:00:00:00:1a dev {HOST_DEVICE}\n\
         route add {POOL_V6} via {router} dev {HOST_DEVICE}\n"
    ))
    .unwrap();
    let own = HOST_V6[0].to_string();
    // Of whom nothing was heard, nothing is known: the host speaks first.
    interrupt::until("the client's answer", PATIENCE, || {
        Ok(ping(host, client.address_v6(), 1, 56)?.answered > 0
            || ping(Client::namespace(lab), &own, 1, 56)?.answered > 0)
    })
    .unwrap();
    let to_host = ping_all(Client::namespace(lab), &own, 10, 1200).unwrap();
    let to_client = ping_all(host, client.address_v6(), 10, 1200).unwrap();
    assert_eq!((to_host.answered, to_client.answered), (10, 10));
    let stream =
        iperf::tcp(Client::namespace(lab), host, HOST_V6[0].into(), Extent::Bytes(64 << 20));
    // What is under way at the end, iperf3's receiver does not count.
    assert!(stream.unwrap().bytes > 32 << 20);
    reaches(Client::namespace(lab), &lab.host_v4(Side::A).to_string());
}

#[test]
fn a_limited_client_is_cut_to_its_rate_and_the_rest_counted_until_the_limit_is_lifted() {
    let test = "a_limited_client_is_cut_to_its_rate";
    let Some((stand, gateway)) = concentrator(test) else { return };
    let lab = &stand.lab;
    let host = lab.host_v4(Side::A).to_string();
    let file = gateway.vpn("add", &["laptop", "--limit", "64k"]).unwrap().stdout;
    let client = Client::start(lab, 0, &file).unwrap();
    reaches(Client::namespace(lab), &host);
    let show = || -> Value {
        let said = gateway.vpn("show", &["laptop", "--json"]).unwrap().stdout;
        serde_json::from_str(&said).unwrap()
    };
    assert_eq!(show()["limit"], "64k");
    // Half a megabyte, which at this rate takes 50 seconds beyond what the bucket holds.
    Client::namespace(lab).run(&format!("ping -q -f -c 400 -s 1300 -W 1 {host}")).unwrap();
    interrupt::until("count of what exceeded the limit", PATIENCE, || {
        let limited = number(&show(), "/counters/limited_packets");
        let dropped = number(&gateway.status()?, "/pairs/0/wire/dropped_by_reason/rate_limit");
        Ok(limited > 0 && dropped > 0)
    })
    .unwrap();
    let limited = number(&show(), "/counters/limited_packets");
    let handshake = client.wg(lab, "latest-handshakes").unwrap();
    gateway.vpn("limit", &["laptop", "none"]).unwrap();
    assert_eq!(show()["limit"], Value::Null);
    let sent = ping_all(Client::namespace(lab), &host, 200, 1300).unwrap();
    assert_eq!(sent.answered, 200);
    assert!(number(&show(), "/counters/limited_packets") <= limited, "none since");
    assert_eq!(client.wg(lab, "latest-handshakes").unwrap(), handshake, "no new handshake");
    gateway.vpn("limit", &["laptop", "2G"]).unwrap();
    let text = gateway.vpn("show", &["laptop"]).unwrap().stdout;
    assert!(text.contains("limit       2Gbit/s"), "{text}");
    let refused = gateway.vpn("limit", &["laptop", "fast"]).unwrap_err().to_string();
    assert!(refused.contains("is no rate"), "{refused}");
}

#[test]
fn a_gateway_is_a_client_of_wireguard_go_and_of_another_gateway() {
    let test = "a_gateway_is_a_client_of_wireguard_go";
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg"])) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    drop(lab);
    for tunnel in [Tunnelled::by_wireguard_go(WEIR.as_ref()), Tunnelled::by_weir(WEIR.as_ref())] {
        let tunnel = tunnel.unwrap();
        let lab = tunnel.lab();
        let [near, far] = [Side::A, Side::B].map(|side| lab.host_v4(side).to_string());
        assert_eq!(ping_all(lab.host(Side::B), &near, 10, 1200).unwrap().answered, 10);
        assert_eq!(ping_all(lab.host(Side::A), &far, 10, 1200).unwrap().answered, 10);
    }
}

#[test]
fn masqueraded_clients_reach_a_host_that_has_no_route_back_to_them() {
    masqueraded_clients_reach_a_host("masqueraded_clients_reach_a_host", "");
}

/// Worker 0 does the work of all clients, and what comes back to their one address is its, too.
#[test]
fn masqueraded_clients_reach_a_host_through_a_pair_of_three_workers() {
    masqueraded_clients_reach_a_host("masqueraded_clients_of_workers", "workers = 3\n");
}

fn masqueraded_clients_reach_a_host(test: &str, pair_lines: &str) {
    if let Err(missing) =
        weir_lab::wireguard::program().and(process::require(&["wg", "curl", "python3"]))
    {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let lab = &lab;
    let masquerade = "masquerade = \"10.77.0.250\"\n";
    let gateway = Concentrator::start_with(lab, WEIR.as_ref(), pair_lines, masquerade).unwrap();
    let host = lab.host(Side::A);
    host.ip(&format!("route del {POOL} dev {HOST_DEVICE}\n")).unwrap();
    assert!(host.run("ip route get 10.99.0.2").is_err(), "a way back to clients");
    let own = lab.host_v4(Side::A);
    let files = ["first", "second"].map(|name| gateway.add(name).unwrap());
    let clients = [0, 1].map(|it| Client::start(lab, it, &files[it]).unwrap());
    let namespace = Client::namespace(lab);
    for client in &clients {
        interrupt::until("answer through the tunnel", PATIENCE, || {
            let ping = format!("ping -c 1 -W 1 -I {} {own}", client.port());
            Ok(namespace.run(&ping).is_ok())
        })
        .unwrap();
    }
    // A web server, and both clients from one port of theirs, which the gateway tells apart.
    let folder = lab.folder().join("www");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("page"), vec![b'w'; 1 << 20]).unwrap();
    let mut command = host.command("python3");
    command.args(["-u", "-m", "http.server", "8080", "--bind", &own.to_string(), "--directory"]);
    let server = Running::start(command.arg(&folder)).unwrap();
    let page = format!("http://{own}:8080/page");
    interrupt::until("the web server", PATIENCE, || {
        Ok(namespace.run(&format!("curl -s -f -o /dev/null {page}")).is_ok())
    })
    .unwrap();
    for client in &clients {
        let curl = format!(
            "curl -s -f --interface {} --local-port 40000 -w %{{size_download}} -o /dev/null \
             {page}",
            client.port()
        );
        assert_eq!(namespace.run(&curl).unwrap().stdout, (1 << 20).to_string());
    }
    // Whom the host heard is the gateway's address.
    let said = server.stderr();
    assert!(said.contains("10.77.0.250 - - ") && !said.contains("10.99.0."), "{said}");
    drop(server);
    let stream = iperf::tcp(namespace, host, own.into(), Extent::Bytes(64 << 20)).unwrap();
    assert!(stream.bytes > 32 << 20, "{stream:?}");
    // Packets in fragments, and answers as large.
    assert_eq!(fragmented(namespace, &own.to_string()), 3);
    // A closed port is told of by ICMP, in words that the client's kernel understands.
    let mut asks = namespace.command("python3");
    let mut asks = Running::start(asks.args(["-c", UDP_REFUSED, &own.to_string()])).unwrap();
    asks.wait_for("refused", PATIENCE).unwrap();
    // Nobody calls a client by the gateway's address.
    assert!(host.run("ping -c 2 -W 1 10.77.0.250").is_err());
    let status = gateway.status().unwrap();
    let dropped = number(&status, "/pairs/0/host/dropped_by_reason/nat_no_mapping");
    assert!(dropped >= 2, "{status:#}");
}

/// Answers to three pings that are cut into fragments on the way out.
fn fragmented(from: &Namespace, target: &str) -> usize {
    let said = from.run(&format!("ping -c 3 -i 0.2 -s 4000 -W 10 -M dont {target}"));
    said.map_or(0, |it| it.stdout.lines().filter(|it| it.contains("bytes from")).count())
}

/// Asks a UDP port that nobody listens on until the kernel says so.
const UDP_REFUSED: &str = "\
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.connect((sys.argv[1], 9))
for _ in range(25):
    try:
        s.send(b'?')
        s.recv(1)
    except ConnectionRefusedError:
        print('refused', flush=True)
        break
    except socket.timeout:
        pass
";

#[test]
fn alerts_and_records_name_the_client_behind_an_address() {
    let test = "alerts_and_records_name_the_client";
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg"])) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let rules = lab.folder().join("ping.rules");
    let rule = "alert icmp any any -> any any (msg:\"a ping\"; itype:8; sid:1;)\n";
    std::fs::write(&rules, rule).unwrap();
    let eve = lab.folder().join("eve.json");
    let tables = format!(
        "\n[rules]\npaths = [\"{}\"]\neve = \"{}\"\n\n[store]\nsize_mib = 16\n",
        rules.display(),
        eve.display()
    );
    let mut gateway = Concentrator::start_with(&lab, WEIR.as_ref(), "", &tables).unwrap();
    let host = lab.host_v4(Side::A).to_string();
    let client = Client::start(&lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    reaches(Client::namespace(&lab), &host);
    let alerts = || -> Vec<Value> {
        let text = std::fs::read_to_string(&eve).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    interrupt::until("alert in EVE", PATIENCE, || Ok(!alerts().is_empty())).unwrap();
    for alert in alerts() {
        assert_eq!(alert["src_ip"], client.address(), "{alert:#}");
        assert_eq!(alert["src_peer"], "laptop", "{alert:#}");
        assert_eq!(alert["dest_peer"], Value::Null, "{alert:#}");
    }
    // Flows are told of when the gateway ends, at the latest.
    gateway.daemon().signal(Signal::TERM).unwrap();
    let daemon = gateway.daemon();
    interrupt::until("its end", PATIENCE, || Ok(!daemon.is_running()?)).unwrap();
    let read = |arguments: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(arguments).arg("--store").arg(lab.folder().join("state-vpn").join("store"));
        process::run(&mut command, PATIENCE).unwrap().stdout
    };
    let flows: Value = serde_json::from_str(&read(&["flows", "--json"])).unwrap();
    let pinged = flows.as_array().unwrap().iter().find(|it| it["source"] == client.address());
    let pinged = pinged.unwrap_or_else(|| panic!("{flows:#}"));
    assert_eq!(pinged["source_peer"], "laptop", "{pinged:#}");
    assert_eq!(pinged.get("destination_peer"), None, "{pinged:#}");
    let text = read(&["flows"]);
    assert!(text.contains(&format!("{} (laptop)", client.address())), "{text}");
    let kept: Value = serde_json::from_str(&read(&["alerts", "--json"])).unwrap();
    assert_eq!(kept[0]["event"]["src_peer"], "laptop", "{kept:#}");
}
