//! `weir vpn openvpn`: real daemons of OpenVPN run with what it writes.

use std::path::PathBuf;

use rustix::process::{Pid, kill_process, test_kill_process};
use weir_lab::netns::Namespace;
use weir_lab::topology::{GATEWAY_V4, HOST_DEVICE, WIRE_PORT};
use weir_lab::vpn::Concentrator;

use super::*;

fn openvpn(arguments: &[&str], folder: &std::path::Path) -> anyhow::Result<String> {
    let mut command = Command::new(WEIR);
    command.args(["vpn", "openvpn", "--remote", &GATEWAY_V4[0].to_string()]);
    Ok(process::run(command.args(arguments).arg("-o").arg(folder), PATIENCE)?.stdout)
}

#[test]
fn openvpns_own_daemons_take_the_files_and_each_tunnel_carries() {
    let test = "openvpns_own_daemons_take_the_files";
    if let Err(missing) = process::require(&["openvpn", "openssl"]) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let folder = lab.folder().join("openvpn");
    let terms = ["--tunnels", "2", "--cipher", "chacha20-poly1305", "--mtu", "1400", "--json"];
    let said = openvpn(&[&terms[..], &["--route", "10.55.0.0/16"]].concat(), &folder).unwrap();
    let tunnels: Value = serde_json::from_str(&said).unwrap();
    let mut daemons = Vec::new();
    for (side, own) in Side::BOTH.into_iter().zip(GATEWAY_V4) {
        let lines = format!("addr add {own}/24 dev {WIRE_PORT}\nlink set {WIRE_PORT} up\n");
        lab.gateway(side).ip(&lines).unwrap();
    }
    for (side, end) in [(Side::A, "server"), (Side::B, "client")] {
        for tunnel in tunnels.as_array().unwrap() {
            let file = tunnel[end].as_str().unwrap();
            let mut command = lab.gateway(side).command("openvpn");
            daemons.push(Running::start(command.args(["--config", file])).unwrap());
        }
    }
    for daemon in &mut daemons {
        daemon.wait_for("Initialization Sequence Completed", PATIENCE).unwrap();
    }
    let client = lab.gateway(Side::B);
    for server in ["10.98.0.1", "10.98.0.9"] {
        assert_eq!(ping_all(client, server, 3, 1000).unwrap().answered, 3, "{server}");
    }
    let routes = client.run("ip route").unwrap().stdout;
    assert!(routes.contains("10.55.0.0/16 via 10.98.0."), "{routes}");
    assert!(routes.contains("10.98.0.8/29"), "{routes}");
    let links = client.run("ip link").unwrap().stdout;
    assert_eq!(links.matches("mtu 1400").count(), 2, "{links}");
    let client_2 = std::fs::read_to_string(folder.join("client-2.conf")).unwrap();
    assert!(client_2.contains("data-ciphers CHACHA20-POLY1305"), "{client_2}");

    // Keys are never overwritten, and what a failed attempt wrote is taken away.
    std::fs::remove_file(folder.join("server-1.conf")).unwrap();
    let refused = openvpn(&["--tunnels", "2"], &folder).unwrap_err().to_string();
    assert!(refused.contains("never overwritten"), "{refused}");
    let left: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left.len(), 5, "{left:?}");
    assert_eq!(client_2, std::fs::read_to_string(folder.join("client-2.conf")).unwrap());
}

/// Pings `target` by `device`, and returns how many answers came.
fn answers(from: &Namespace, device: &str, target: &str) -> usize {
    let said = from.run(&format!("ping -c 3 -i 0.2 -W 1 -I {device} {target}"));
    said.map_or(0, |it| it.stdout.matches("bytes from").count())
}

/// Puts a server with a pool for two clients, and one with a static key, into one folder, which it
/// returns with the clients' files.
fn tunnels(lab: &Lab) -> (PathBuf, [PathBuf; 3]) {
    let [pool, old] = ["tunnels", "old"].map(|it| lab.folder().join(it));
    let terms = "--one-server --tunnels 2 --network 10.98.0.0/28 --route 10.77.0.0/24";
    openvpn(&terms.split(' ').collect::<Vec<_>>(), &pool).unwrap();
    let terms = "--static-key --tunnels 1 --network 10.97.0.0/29 --port 1300";
    openvpn(&terms.split(' ').collect::<Vec<_>>(), &old).unwrap();
    let tunnel = std::fs::read_to_string(old.join("tunnel-1.toml")).unwrap();
    let tunnel = tunnel.replace("server-1", "server-9").replace("weir-ovpn1", "weir-ovpn9");
    std::fs::write(pool.join("old.toml"), tunnel).unwrap();
    std::fs::rename(old.join("server-1.conf"), pool.join("server-9.conf")).unwrap();
    let clients =
        [pool.join("client-1.conf"), pool.join("client-2.conf"), old.join("client-1.conf")];
    (pool, clients)
}

fn tunnel(status: &Value, name: &str) -> Value {
    let peers = status["pairs"][0]["peers"].as_array().unwrap();
    peers.iter().find(|it| it["name"] == name).unwrap().clone()
}

/// The process of a tunnel's daemon.
fn daemon_of(gateway: &Concentrator, name: &str) -> Pid {
    let shown = tunnel(&gateway.status().unwrap(), name);
    Pid::from_raw(number(&shown, "/openvpn/pid") as i32).unwrap()
}

/// The tunnel devices of the clients.
const DEVICES: [&str; 3] = ["ovc1", "ovc2", "ovc9"];

/// Starts OpenVPN's clients with these files.
fn start_clients(clients: &Namespace, files: &[PathBuf; 3]) -> Vec<Running> {
    let start = |(file, device): (&PathBuf, &str)| {
        let mut command = clients.command("openvpn");
        let file = file.display().to_string();
        command.args(["--config", &file, "--dev", device, "--dev-type", "tun"]);
        Running::start(&mut command).unwrap()
    };
    let mut running: Vec<Running> = files.iter().zip(DEVICES).map(start).collect();
    for daemon in &mut running {
        daemon.wait_for("Initialization Sequence Completed", PATIENCE).unwrap();
    }
    running
}

/// Kills a daemon, and then the gateway.
fn comes_back_after_kills(lab: &Lab, gateway: &mut Concentrator) {
    let (clients, host) = (lab.gateway(Side::B), lab.host_v4(Side::A).to_string());
    // A daemon that is killed is started again, and its clients come back.
    kill_process(daemon_of(gateway, "old"), Signal::KILL).unwrap();
    let again = || {
        let shown = tunnel(&gateway.status().unwrap(), "old");
        Ok(number(&shown, "/openvpn/restarts") == 1 && shown["openvpn"]["state"] == "serving")
    };
    interrupt::until("the daemon again", PATIENCE, again).unwrap();
    let answer = || Ok(answers(clients, "ovc9", &host) > 0);
    interrupt::until("answer through its tunnel", PATIENCE, answer).unwrap();

    // However the gateway ends, its daemons do.
    let daemons = ["old", "tunnel-1"].map(|name| daemon_of(gateway, name));
    gateway.daemon().signal(Signal::KILL).unwrap();
    interrupt::until("the daemons' end", PATIENCE, || {
        Ok(daemons.iter().all(|it| test_kill_process(*it).is_err()))
    })
    .unwrap();
    assert_eq!(answers(clients, "ovc1", &host), 0, "a dead gateway passes nothing");
    gateway.start_again(lab).unwrap();
    let answer = || Ok(answers(clients, "ovc9", &host) > 0);
    interrupt::until("answer after the restart", PATIENCE, answer).unwrap();
}

#[test]
fn the_gateway_runs_openvpns_daemons_and_judges_what_comes_out_of_their_tunnels() {
    let test = "the_gateway_runs_openvpns_daemons";
    if let Err(missing) = process::require(&["openvpn", "openssl", "setpriv"]) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let (folder, files) = tunnels(&lab);
    let table = format!("[pair.openvpn]\ntunnels = \"{}\"\n", folder.display());
    let mut gateway = Concentrator::start_with(&lab, WEIR.as_ref(), "", &table).unwrap();
    let routes = format!(
        "route add 10.98.0.0/28 dev {HOST_DEVICE}\n\
                          route add 10.97.0.0/29 dev {HOST_DEVICE}\n"
    );
    lab.host(Side::A).ip(&routes).unwrap();
    let clients = lab.gateway(Side::B);
    let [_, own] = GATEWAY_V4;
    clients.ip(&format!("addr add {own}/24 dev {WIRE_PORT}\nlink set {WIRE_PORT} up\n")).unwrap();
    let wire = listen(&lab, 0);
    let state = |gateway: &Concentrator, name: &str| tunnel(&gateway.status().unwrap(), name);
    for name in ["tunnel-1", "old"] {
        let is_up = |state: &Value| ["serving", "listening"].iter().any(|it| state == it);
        let serves = || Ok(is_up(&state(&gateway, name)["openvpn"]["state"]));
        interrupt::until("a daemon that serves", PATIENCE, serves).unwrap();
    }
    let _running = start_clients(clients, &files);
    let host = lab.host_v4(Side::A).to_string();
    for device in DEVICES {
        let answer = || Ok(answers(clients, device, &host) > 0);
        interrupt::until("answer through a tunnel", PATIENCE, answer).unwrap();
        assert_eq!(answers(clients, device, &host), 3, "{device}");
    }
    // The host finds clients, and large packets are cut by their senders.
    let reached = || Ok(ping_all(lab.host(Side::A), "10.98.0.2", 3, 1200)?.answered == 3);
    interrupt::until("answers to the host", PATIENCE, reached).unwrap();
    // What is not of the tunnel does not pass, and is counted under its name.
    clients.ip("addr add 10.97.3.3/32 dev ovc9\n").unwrap();
    assert!(clients.run(&format!("ping -c 3 -i 0.2 -W 1 -I 10.97.3.3 {host}")).is_err());
    let refused = || Ok(number(&state(&gateway, "old"), "/refused_packets") >= 3);
    clients.ip(&format!("route add {host}/32 dev ovc9\n")).unwrap();
    let _ = clients.run(&format!("ping -c 3 -i 0.2 -W 1 -I 10.97.3.3 {host}"));
    interrupt::until("count of what it may not send", PATIENCE, refused).unwrap();
    clients.ip(&format!("route del {host}/32 dev ovc9\n")).unwrap();

    let who = || {
        let shown = state(&gateway, "tunnel-1");
        Ok(shown["openvpn"]["clients"].as_array().is_some_and(|it| it.len() == 2))
    };
    interrupt::until("both clients of the pool", PATIENCE, who).unwrap();
    let listed = gateway.vpn("list", &["--json"]).unwrap().stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed:#}");
    assert!(number(&listed[1], "/counters/received_packets") >= 6, "{listed:#}");
    assert!(gateway.vpn("list", &[]).unwrap().stdout.contains("client-2"));
    let shown = gateway.vpn("show", &["tunnel-1"]).unwrap().stdout;
    assert!(shown.contains("serving") && shown.contains("client-2"), "{shown}");
    let status = gateway.status().unwrap();
    assert_eq!(status["adds_up"], true, "{status:#}");
    let sealed = "udp port 1194 or udp port 1300";
    let wire = wire.stop().unwrap();
    assert!(wire.count(sealed).unwrap() > 30);
    assert_eq!(wire.count(&format!("ip and not ({sealed})")).unwrap(), 0, "packets in clear");
    assert!(!wire.contains(PING_MARK).unwrap());

    comes_back_after_kills(&lab, &mut gateway);
}
