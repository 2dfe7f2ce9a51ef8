//! Libreswan's pluto over Weir's ESP, strongSwan over its own (kernel-libipsec) behind the wire.
//! Debian does not let both be installed: pluto runs from where its package was unpacked.

use std::path::Path;

use weir_lab::observe::Capture;
use weir_lab::topology::{GATEWAY_V4, WIRE_END_A};

use super::charon::{Charon, HOST_B, Proof, assert_sealed, while_it_pings, with_weir};
use super::*;

/// Where pluto looks for its helpers.
const LIBEXEC: &str = "/usr/libexec";

/// What is to stand there: the package's, unpacked or installed.
fn programs() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let unpacked = Path::new(&home).join(".cache/weir/libreswan").join(&LIBEXEC[1..]);
    [LIBEXEC.into(), unpacked].into_iter().find(|folder| folder.join("ipsec/pluto").exists())
}

/// One pluto under `weir xfrm`, with files of its own.
struct Pluto {
    daemon: Running,
    folder: PathBuf,
    programs: PathBuf,
}

impl Pluto {
    fn start(lab: &Lab, side: Side, programs: PathBuf) -> Self {
        let folder = lab.folder().join(format!("pluto{side:?}"));
        fs::create_dir_all(folder.join("nss")).unwrap();
        let (own, other) = (GATEWAY_V4[side.index()], GATEWAY_V4[side.other().index()]);
        let connection = format!(
            "config setup\n\nconn net\n left={own}\n leftid=@a.example\n \
             leftsubnet=10.77.1.0/24\n right={other}\n rightid=@b.example\n \
             rightsubnet=10.77.2.0/24\n authby=secret\n ikev2=yes\n encapsulation=yes\n \
             ike=aes_gcm256-sha2_256-dh19\n esp=aes_gcm256;dh19\n esn=no\n fragmentation=no\n \
             leftupdown=%disabled\n auto=ignore\n"
        );
        fs::write(folder.join("ipsec.conf"), connection).unwrap();
        let secret = "@a.example @b.example : PSK \"correct horse battery staple\"\n";
        fs::write(folder.join("ipsec.secrets"), secret).unwrap();
        let mut database = Command::new("certutil");
        database.args(["-N", "--empty-password", "-d"]);
        database.arg(format!("sql:{}", folder.join("nss").display()));
        let made = Running::start(&mut database).unwrap().finish(PATIENCE).unwrap();
        assert!(made.status.success(), "{}", made.stderr);
        // Its helpers stand where it looks for them in a namespace of mounts of its own.
        let start = format!(
            "mkdir -p {LIBEXEC} && mount --bind {} {LIBEXEC} && exec \"$@\"",
            programs.display()
        );
        let mut command = lab.gateway(side).command("unshare");
        command.args(["-m", "sh", "-c", &start, "sh"]);
        let pluto = format!("{LIBEXEC}/ipsec/pluto");
        let under = under_weir(lab, side, &[&pluto, "--nofork", "--stderrlog"]);
        command.args(under.get_args().skip_while(|it| *it != WEIR));
        command.args(["--use-xfrm", "--no-dnssec", "--config"]).arg(folder.join("ipsec.conf"));
        command.arg("--secretsfile").arg(folder.join("ipsec.secrets"));
        command.arg("--ipsecdir").arg(&folder).arg("--nssdir").arg(folder.join("nss"));
        command.arg("--rundir").arg(&folder);
        let daemon = Running::start(&mut command).unwrap();
        let mut pluto = Self { daemon, folder, programs };
        let socket = pluto.folder.join("pluto.ctl");
        interrupt::until("pluto's socket", PATIENCE, || {
            assert!(pluto.daemon.is_running()?, "{}", pluto.log());
            Ok(socket.exists())
        })
        .unwrap();
        pluto
    }

    /// What pluto's helper `name` says.
    fn says(&self, name: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new(self.programs.join("ipsec").join(name));
        match name {
            "whack" => command.arg("--rundir").arg(&self.folder),
            _ => command.arg("--ctlsocket").arg(self.folder.join("pluto.ctl")),
        };
        command.args(arguments);
        Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
    }

    #[track_caller]
    fn does(&self, name: &str, arguments: &[&str]) -> String {
        let said = self.says(name, arguments);
        let words = format!("{}{}", said.stdout, said.stderr);
        assert!(said.status.success(), "{name} {arguments:?}: {words}\n{}", self.log());
        words
    }

    fn log(&self) -> String {
        self.daemon.stderr()
    }
}

/// A lab with pluto beside Weir on side A and charon on side B, its connection known to both.
struct Pair {
    stand: Stand,
    a: Pluto,
    b: Charon,
    _weir: Running,
}

fn pair(test: &str) -> Option<Pair> {
    let Some(programs) = programs() else {
        eprintln!("SKIPPED: {test} needs libreswan's programs, installed or unpacked");
        return None;
    };
    if let Err(missing) = process::require(&["certutil"]) {
        eprintln!("SKIPPED: {test}: {missing}");
        return None;
    }
    let (stand, weir) = with_weir(test)?;
    let b = Charon::start(&stand.lab, Side::B, Proof::SharedKey, "");
    b.load();
    let a = Pluto::start(&stand.lab, Side::A, programs);
    let configuration = a.folder.join("ipsec.conf").display().to_string();
    a.does("addconn", &["--config", &configuration, "net"]);
    a.does("whack", &["--listen"]);
    Some(Pair { stand, a, b, _weir: weir })
}

/// How many associations seal for pluto so far, one after the other.
fn made(pair: &Pair) -> usize {
    pair.b.log().matches("established with SPIs").count()
}

#[test]
fn pluto_drives_the_gateway_and_its_rekeys_lose_nothing() {
    let Some(pair) = pair("pluto") else { return };
    let lab = &pair.stand.lab;
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 256).unwrap();
    pair.a.does("whack", &["--initiate", "--name", "net"]);
    wait_for_ping(lab, HOST_B);
    while_it_pings(lab, || {
        for count in 2..=3 {
            pair.a.does("whack", &["--rekey-ipsec", "--name", "net"]);
            interrupt::until("a rekey", PATIENCE, || Ok(made(&pair) >= count)).unwrap();
        }
    });
    assert_sealed(&wire.stop().unwrap());
    let status = pair.a.does("whack", &["--trafficstatus"]);
    assert!(status.contains("type=ESP") && !status.contains("inBytes=0,"), "{status}");
    let policies = xfrm(lab, Side::A, "ip xfrm policy");
    for word in ["dir out", "dir in", "dir fwd", "src 10.77.1.0/24 dst 10.77.2.0/24"] {
        assert!(policies.contains(word), "{word}: {policies}");
    }
    pair.a.does("whack", &["--terminate", "--name", "net"]);
    let gone = || Ok(!xfrm(lab, Side::A, "ip xfrm state").contains("proto esp"));
    interrupt::until("end of all associations", PATIENCE, gone).unwrap();
}

#[test]
fn a_packet_wakes_pluto() {
    let Some(pair) = pair("pluto, on demand") else { return };
    let lab = &pair.stand.lab;
    pair.a.does("whack", &["--route", "--name", "net"]);
    let trap = xfrm(lab, Side::A, "ip xfrm policy");
    assert!(trap.contains("src 10.77.1.0/24 dst 10.77.2.0/24"), "{trap}");
    wait_for_ping(lab, HOST_B);
    assert_eq!(made(&pair), 1, "{}", pair.a.log());
}
