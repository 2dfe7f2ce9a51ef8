//! Sessions of VPN clients that are masqueraded: one connection goes on while the client roams, and
//! after the gateway was killed and started again.

use weir_lab::topology::{GATEWAY_V4, HOST_DEVICE, WIRE_PORT};
use weir_lab::vpn::{Client, Concentrator, POOL};

use super::*;

/// Sends what it gets back to who sent it, one connection, and says whom it serves.
const ECHO: &str = "\
import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', 7000))
s.listen(1)
print('listening', flush=True)
c, peer = s.accept()
print('serves %s:%d' % peer, flush=True)
while True:
    data = c.recv(64)
    if not data:
        break
    c.sendall(data)
print('over', flush=True)
";

/// Counts up over one connection, each number when the last came back, and says every one; `argv`:
/// whom to.
const COUNT: &str = "\
import socket, sys, time
c = socket.create_connection((sys.argv[1], 7000), timeout=60)
c.settimeout(120)
n = 0
while True:
    c.sendall(b'%08d' % n)
    got = b''
    while len(got) < 8:
        more = c.recv(8 - len(got))
        if not more:
            sys.exit('the connection ended')
        got += more
    assert int(got) == n
    n += 1
    print('count %d' % n, flush=True)
    time.sleep(0.1)
";

#[test]
fn a_masqueraded_connection_goes_on_while_its_client_roams_and_after_a_restart() {
    let test = "a_masqueraded_connection_goes_on";
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg", "python3"])) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let lab = &lab;
    let masquerade = "masquerade = \"10.77.0.250\"\n";
    let mut gateway = Concentrator::start_with(lab, WEIR.as_ref(), "", masquerade).unwrap();
    let host = lab.host(Side::A);
    host.ip(&format!("route del {POOL} dev {HOST_DEVICE}\n")).unwrap();
    let own = lab.host_v4(Side::A).to_string();
    let client = Client::start(lab, 0, &gateway.add("laptop").unwrap()).unwrap();
    let namespace = Client::namespace(lab);
    interrupt::until("answer through the tunnel", PATIENCE, || {
        Ok(ping(namespace, &own, 1, 56)?.answered > 0)
    })
    .unwrap();
    let mut server = host.command("python3");
    let mut server = Running::start(server.args(["-c", ECHO])).unwrap();
    server.wait_for("listening", PATIENCE).unwrap();
    let mut counting = namespace.command("python3");
    let mut counting = Running::start(counting.args(["-c", COUNT, &own])).unwrap();
    server.wait_for("serves 10.77.0.250:", PATIENCE).unwrap();
    let count = |counting: &Running| {
        let said = counting.stdout();
        let last = said.lines().filter_map(|it| it.strip_prefix("count ")?.parse::<u64>().ok());
        last.max().unwrap_or(0)
    };
    let mut goes_on = |what: &str| {
        let before = count(&counting);
        interrupt::until(what, 3 * PATIENCE, || {
            anyhow::ensure!(counting.is_running()?, "{}", counting.stderr());
            Ok(count(&counting) >= before + 5)
        })
        .unwrap();
    };
    goes_on("count over the connection");

    // Another port, and another address.
    namespace.run(&format!("wg set {} listen-port 40001", client.port())).unwrap();
    goes_on("count after a change of port");
    let [concentrator, outer] = GATEWAY_V4;
    namespace
        .ip(&format!(
            "addr add 192.168.77.98/32 dev {WIRE_PORT}\n\
             route add {concentrator}/32 dev {WIRE_PORT} src 192.168.77.98\n\
             addr del {outer}/24 dev {WIRE_PORT}\n"
        ))
        .unwrap();
    goes_on("count after a change of address");

    // What is translated is not kept: the client's next packet gets the same port again.
    gateway.daemon().signal(Signal::KILL).unwrap();
    let daemon = gateway.daemon();
    interrupt::until("its end", PATIENCE, || Ok(!daemon.is_running()?)).unwrap();
    gateway.start_again(lab).unwrap();
    goes_on("count after a restart");
    let serves = server.stdout().matches("serves").count();
    assert_eq!(serves, 1, "one connection: {}", server.stdout());
    assert!(!server.stdout().contains("over"));
}
