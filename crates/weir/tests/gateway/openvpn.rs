//! `weir vpn openvpn`: real daemons of OpenVPN run with what it writes.

use std::path::PathBuf;

use weir_lab::topology::{GATEWAY_V4, WIRE_PORT};

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
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(client_2, std::fs::read_to_string(folder.join("client-2.conf")).unwrap());
}
