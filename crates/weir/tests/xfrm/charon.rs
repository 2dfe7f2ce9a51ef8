//! strongSwan on both sides: charon over Weir's ESP, charon over its own user-space ESP
//! (kernel-libipsec) behind the wire. Weir has never seen the other's code.

use std::path::Path;

use weir_lab::observe::{Capture, Captured};
use weir_lab::topology::{GATEWAY_V4, Gateways as GatewayKind, WIRE_END_A};
use weir_lab::traffic::ping::ping_all_every;

use super::*;

const CHARON: &str = "/usr/lib/ipsec/charon";
/// Both gateways' IKE and ESP in UDP, to tcpdump. ESP's first word is never 0, which is IKE's mark.
const IKE: &str = "(udp port 500 or (udp port 4500 and udp[8:4] = 0))";
const ESP_IN_UDP: &str = "(udp port 4500 and not udp[8:4] = 0)";
const NAT_KEEPALIVE: &str = "(udp port 4500 and udp[4:2] = 9)";

/// One IKE daemon, with files of its own where others keep them in `/run`.
pub(super) struct Charon {
    daemon: Running,
    folder: PathBuf,
}

/// How the two prove who they are.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Proof {
    SharedKey,
    Certificates,
}

impl Charon {
    pub(super) fn start(lab: &Lab, side: Side, proof: Proof, lines: &str) -> Self {
        let folder = lab.folder().join(format!("charon{side:?}"));
        for part in ["x509", "x509ca", "private"] {
            fs::create_dir_all(folder.join("swanctl").join(part)).unwrap();
        }
        let plugins = match side {
            Side::A => "kernel-netlink",
            Side::B => "kernel-libipsec kernel-netlink",
        };
        let settings = format!(
            "charon {{\n load = random nonce openssl aes gcm sha1 sha2 hmac kdf pem pkcs1 pkcs8 \
             x509 pubkey constraints revocation {plugins} socket-default vici updown\n\
             install_routes = {}\n retransmit_tries = 2\n retransmit_timeout = 2\n\
             plugins {{\n vici {{ socket = unix://{}/vici }}\n }}\n\
             filelog {{\n stderr {{ time_format = %T\n time_add_ms = yes\n default = 1\n\
             ike_name = yes\n knl = 2\n }}\n }}\n}}\n",
            if side == Side::A { "no" } else { "yes" },
            folder.display(),
        );
        fs::write(folder.join("strongswan.conf"), settings).unwrap();
        fs::write(folder.join("swanctl/swanctl.conf"), connection(side, proof, lines)).unwrap();
        // charon's lock is in /run: in this namespace of mounts that is a folder of its own, with
        // the lab's in it.
        let run = folder.join("run");
        let start = format!(
            "mkdir -p {0}/weir-lab && mount --rbind /run/weir-lab {0}/weir-lab && \
             mount --rbind {0} /run && exec \"$@\" {CHARON}",
            run.display(),
        );
        let gateway = lab.gateway(side);
        let mut command = gateway.command("unshare");
        command.args(["-m", "sh", "-c", &start, "sh"]);
        if side == Side::A {
            let weir = under_weir(lab, side, &[]);
            let words: Vec<_> = weir.get_args().skip_while(|it| *it != WEIR).collect();
            command.args(words);
        }
        command.env("STRONGSWAN_CONF", folder.join("strongswan.conf"));
        let daemon = Running::start(&mut command).unwrap();
        let mut charon = Self { daemon, folder };
        let vici = charon.folder.join("vici");
        interrupt::until("charon's socket", PATIENCE, || {
            assert!(charon.daemon.is_running()?, "{}", charon.log());
            Ok(vici.exists())
        })
        .unwrap();
        charon
    }

    /// Takes in connections and secrets, once all files are there.
    pub(super) fn load(&self) {
        let said = self.swanctl(&["--load-all", "--noprompt"]);
        assert!(said.status.success(), "{}{}", said.stdout, said.stderr);
    }

    fn swanctl(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new("swanctl");
        command.args(arguments).arg("--uri").arg(format!("unix://{}/vici", self.folder.display()));
        command.env("SWANCTL_DIR", self.folder.join("swanctl"));
        command.env("STRONGSWAN_CONF", self.folder.join("strongswan.conf"));
        Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
    }

    #[track_caller]
    fn does(&self, arguments: &[&str]) -> String {
        let said = self.swanctl(arguments);
        assert!(
            said.status.success(),
            "{arguments:?}: {}{}\n{}",
            said.stdout,
            said.stderr,
            self.log()
        );
        said.stdout
    }

    pub(super) fn log(&self) -> String {
        self.daemon.stderr()
    }
}

fn connection(side: Side, proof: Proof, lines: &str) -> String {
    let (own, other) = (side.index(), side.other().index());
    let name = |index: usize| ["a.example", "b.example"][index];
    let (local, remote) = match proof {
        Proof::SharedKey => ("auth = psk".to_owned(), "auth = psk".to_owned()),
        Proof::Certificates => {
            (format!("auth = pubkey\n certs = {}.pem", name(own)), "auth = pubkey".to_owned())
        }
    };
    format!(
        "connections {{\n gateways {{\n version = 2\n encap = yes\n mobike = no\n dpd_delay = 2s\n\
         local_addrs = {}\n remote_addrs = {}\n proposals = aes256gcm16-prfsha256-ecp256\n\
         local {{\n {local}\n id = {}\n }}\n remote {{\n {remote}\n id = {}\n }}\n\
         children {{\n net {{\n local_ts = 10.77.{}.0/24\n remote_ts = 10.77.{}.0/24\n\
         esp_proposals = aes256gcm16-ecp256-noesn\n mode = tunnel\n {lines}\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-gateways {{\n id-a = a.example\n id-b = b.example\n\
         secret = \"correct horse battery staple\"\n }}\n}}\n",
        GATEWAY_V4[own],
        GATEWAY_V4[other],
        name(own),
        name(other),
        own + 1,
        other + 1,
    )
}

/// A lab whose side A is Weir with an address, side B a router with charon, both up.
struct Pair {
    stand: Stand,
    weir: Running,
    a: Charon,
    b: Charon,
}

fn pair(test: &str, proof: Proof, lines: [&str; 2]) -> Option<Pair> {
    let (stand, weir) = with_weir(test)?;
    let lab = &stand.lab;
    let a = Charon::start(lab, Side::A, proof, lines[0]);
    let b = Charon::start(lab, Side::B, proof, lines[1]);
    if proof == Proof::Certificates {
        certify([&a, &b]);
    }
    b.load();
    a.load();
    Some(Pair { stand, weir, a, b })
}

/// A lab whose side A is Weir with an address, side B a router; neither has an IKE daemon yet.
pub(super) fn with_weir(test: &str) -> Option<(Stand, Running)> {
    if !Path::new(CHARON).exists() {
        eprintln!("SKIPPED: {test} needs charon (strongswan-charon)");
        return None;
    }
    let plan = Plan { gateways: GatewayKind::Routed, ..Plan::default() };
    let stand = stand(test, plan, &["swanctl", "pki", "unshare"])?;
    let lab = &stand.lab;
    lab.gateway(Side::A).ip("addr flush dev p0\naddr flush dev pf0hpf\n").unwrap();
    // A bump in the wire answers no ARP: the host is told a router that is not there.
    let router = "neigh replace 10.77.1.254 lladdr 02:77:00:00:00:fe dev eth0 nud permanent\n";
    lab.host(Side::A).ip(router).unwrap();
    let text = configuration(lab, Side::A, "address = \"192.168.77.1/24\"\n");
    let file = weir_lab::gateways::configure(lab, Side::A, &text).unwrap();
    let mut command = lab.gateway(Side::A).command(WEIR);
    let weir = Running::start(command.arg("up").arg(file)).unwrap();
    let socket = run_folder(lab, Side::A).join(format!("{}.port0.xfrm", NAMES[0]));
    interrupt::until("the front end's socket", PATIENCE, || Ok(socket.exists())).unwrap();
    Some((stand, weir))
}

/// A small authority for both, by strongSwan's own tool.
fn certify(both: [&Charon; 2]) {
    let work = both[0].folder.clone();
    let pki = |line: &str, output: &str| {
        let script = format!("pki {line} --outform pem > {output}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&work);
        let said = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
        assert!(said.status.success(), "{line}: {}", said.stderr);
    };
    pki("--gen --type ecdsa --size 256", "ca.key");
    pki("--self --ca --type ecdsa --in ca.key --dn CN=Lab --lifetime 2", "ca.pem");
    for (charon, name) in both.iter().zip(["a.example", "b.example"]) {
        pki("--gen --type ecdsa --size 256", &format!("{name}.key"));
        pki(&format!("--pub --type ecdsa --in {name}.key"), &format!("{name}.pub"));
        pki(
            &format!(
                "--issue --cacert ca.pem --cakey ca.key --in {name}.pub --dn CN={name} \
                 --san {name} --lifetime 1"
            ),
            &format!("{name}.pem"),
        );
        let to = charon.folder.join("swanctl");
        fs::copy(work.join("ca.pem"), to.join("x509ca/ca.pem")).unwrap();
        fs::copy(work.join(format!("{name}.pem")), to.join(format!("x509/{name}.pem"))).unwrap();
        fs::copy(work.join(format!("{name}.key")), to.join(format!("private/{name}.key"))).unwrap();
    }
}

#[track_caller]
pub(super) fn assert_sealed(wire: &Captured) {
    assert_eq!(wire.dropped_by_kernel, 0, "tcpdump saw all of it");
    let clear = format!(
        "not {ESP_IN_UDP} and not {IKE} and not {NAT_KEEPALIVE} and not arp \
        and not icmp6"
    );
    assert_eq!(wire.count(&clear).unwrap(), 0, "frames in clear");
    assert!(wire.count(ESP_IN_UDP).unwrap() > 0 && wire.count(IKE).unwrap() >= 4);
}

pub(super) const HOST_B: &str = "10.77.2.1";

#[test]
fn charon_with_a_shared_key_drives_the_gateway_against_strongswans_own_esp() {
    let lines = "start_action = none";
    let Some(pair) = pair("charon", Proof::SharedKey, [lines; 2]) else { return };
    let lab = &pair.stand.lab;
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 256).unwrap();
    let said = pair.a.swanctl(&["--initiate", "--child", "net"]);
    assert!(said.status.success(), "{}\n{}", pair.a.log(), pair.b.log());
    wait_for_ping(lab, HOST_B);
    let report = ping_all(lab.host(Side::A), HOST_B, 20, 1000).unwrap();
    assert_eq!(report.answered, 20, "{}", pair.weir.stderr());
    assert_sealed(&wire.stop().unwrap());
    let listed = pair.a.does(&["--list-sas"]);
    assert!(listed.contains("INSTALLED") && listed.contains("AES_GCM_16-256"), "{listed}");
    let policies = xfrm(lab, Side::A, "ip xfrm policy");
    for word in ["dir out", "dir in", "dir fwd", "src 10.77.1.0/24 dst 10.77.2.0/24"] {
        assert!(policies.contains(word), "{word}: {policies}");
    }
    pair.b.does(&["--terminate", "--ike", "gateways"]);
    wait_without_associations(&pair);
}

#[test]
fn a_packet_wakes_charon_and_rekeys_by_time_lose_nothing() {
    let lines = [
        "start_action = trap\n rekey_time = 3s\n life_time = 30s\n rand_time = 0s",
        "life_time = 60s",
    ];
    let Some(pair) = pair("charon, certificates", Proof::Certificates, lines) else { return };
    let lab = &pair.stand.lab;
    let traps = xfrm(lab, Side::A, "ip xfrm policy");
    assert!(traps.contains("dir out"), "the trap is set: {traps}");
    wait_for_ping(lab, HOST_B);
    assert!(pair.a.log().contains("creating acquire job"), "{}", pair.a.log());
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 256).unwrap();
    while_it_pings(lab, || {
        let made = children(&pair);
        wait_for_children(&pair, made + 3);
    });
    assert_sealed(&wire.stop().unwrap());
}

#[test]
fn rekeys_by_packets_lose_nothing_and_a_dead_peer_is_found() {
    let lines = [
        "start_action = none\n rekey_packets = 200\n life_packets = 100000\n rand_packets = 0\n \
                  dpd_action = clear",
        "",
    ];
    let Some(pair) = pair("charon, packets", Proof::SharedKey, lines) else { return };
    let lab = &pair.stand.lab;
    pair.a.does(&["--initiate", "--child", "net"]);
    wait_for_ping(lab, HOST_B);
    while_it_pings(lab, || {
        let made = children(&pair);
        wait_for_children(&pair, made + 2);
    });
    pair.b.daemon.signal(rustix::process::Signal::KILL).unwrap();
    wait_without_associations(&pair);
    assert!(pair.a.log().contains("giving up after"), "{}", pair.a.log());
}

/// Pings without a pause during `work`; none may be lost. In rounds that each wait for all their
/// answers: who interrupts a ping loses what is on its way.
#[track_caller]
pub(super) fn while_it_pings(lab: &Lab, work: impl FnOnce() + Send) {
    let (mut sent, mut answered) = (0, 0);
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            let every = Duration::from_millis(20);
            let report = ping_all_every(every, lab.host(Side::A), HOST_B, 50, 500).unwrap();
            (sent, answered) = (sent + report.sent, answered + report.answered);
        }
    });
    let mut drops = Command::new(WEIR);
    drops.args(["drops", "--run-dir"]).arg(run_folder(lab, Side::A));
    let drops = process::run(&mut drops, SHORT).unwrap().stdout;
    assert!(sent > 0 && sent == answered, "{answered} of {sent} answered\n{drops}");
}

fn children(pair: &Pair) -> usize {
    pair.a.log().matches("established with SPIs").count()
}

/// Waits until so many CHILD_SAs were made, one after the other.
#[track_caller]
fn wait_for_children(pair: &Pair, count: usize) {
    let made = || Ok(children(pair) >= count);
    let waited = interrupt::until("rekeys", PATIENCE, made);
    waited.unwrap_or_else(|error| panic!("{error:#}: {}", pair.a.log()));
}

#[track_caller]
fn wait_without_associations(pair: &Pair) {
    let mut shown = String::new();
    let waited = interrupt::until("end of all associations", PATIENCE, || {
        shown = xfrm(&pair.stand.lab, Side::A, "ip xfrm state");
        Ok(!shown.contains("proto esp"))
    });
    waited.unwrap_or_else(|error| panic!("{error:#}: {shown}\n{}", pair.a.log()));
}
