//! A risky change on trial: what it cuts comes back by itself, and what is confirmed stays.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use weir_lab::gateways::{NAMES, configurations, configure, run_folder};
use weir_lab::process::Finished;
use weir_lab::topology::Side;

use super::guard::{SHORT, bridge, guard, passes};
use super::*;

const FORWARD: &str = "default = \"forward\"";
const DROP: &str = "default = \"drop\"";

/// A gateway command of side A, to its end, whatever that is.
fn say(lab: &Lab, words: &[&str]) -> Finished {
    let mut command = Command::new(WEIR);
    command.args(words).arg("--run-dir").arg(run_folder(lab, Side::A));
    Running::start(&mut command).unwrap().finish(SHORT).unwrap()
}

/// Gateways that forward, and the configurations: side A's, and one of it that drops all.
fn forwarding(lab: &Lab) -> (Setup, Gateways, [String; 2]) {
    let setup = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(lab, &setup).unwrap();
    let gateways = Gateways::start_configured(lab, &setup, &texts).unwrap();
    wait_until_it_flows(lab);
    let [text, _] = texts;
    let cut = text.replace(FORWARD, DROP);
    assert_ne!(text, cut);
    (setup, gateways, [text, cut])
}

/// The operator's session: one TCP connection from host A to host B, which answers line by line.
struct Session {
    here: BufReader<TcpStream>,
}

impl Session {
    fn open(lab: &Lab) -> Self {
        let address = SocketAddr::from((lab.host_v4(Side::B), 2222));
        let inside = |side: Side, make: &(dyn Fn() -> std::io::Result<TcpOrListener> + Sync)| {
            thread::scope(|scope| {
                let made = scope.spawn(|| {
                    lab.host(side).enter().unwrap();
                    make().unwrap()
                });
                made.join().unwrap()
            })
        };
        let listener =
            inside(Side::B, &|| Ok(TcpOrListener::Listener(TcpListener::bind(address)?)));
        let stream = inside(Side::A, &|| {
            Ok(TcpOrListener::Stream(TcpStream::connect_timeout(&address, PATIENCE)?))
        });
        let (TcpOrListener::Listener(listener), TcpOrListener::Stream(here)) = (listener, stream)
        else {
            unreachable!("made in this order");
        };
        thread::spawn(move || {
            let (mut there, _) = listener.accept().unwrap();
            let lines = BufReader::new(there.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                if there.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self { here: BufReader::new(here) }
    }

    fn type_line(&mut self, line: &str) {
        self.here.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next answer; `None`: none within `patience`.
    fn answer(&mut self, patience: Duration) -> Option<String> {
        self.here.get_ref().set_read_timeout(Some(patience)).unwrap();
        let mut line = String::new();
        match self.here.read_line(&mut line) {
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("the connection is lost: {error}"),
        }
    }
}

enum TcpOrListener {
    Listener(TcpListener),
    Stream(TcpStream),
}

#[test]
fn a_change_that_cuts_the_operator_off_is_taken_back_and_the_same_connection_lives_on() {
    let Some(Stand { _turn, lab }) = stand("a_change_that_cuts_the_operator_off") else { return };
    let (_, gateways, [text, cut]) = forwarding(&lab);
    let mut session = Session::open(&lab);
    session.type_line("before");
    assert_eq!(session.answer(PATIENCE).as_deref(), Some("before"));

    configure(&lab, Side::A, &cut).unwrap();
    let taken = say(&lab, &["reload", NAMES[0], "--confirm-within", "10s"]);
    assert_eq!(taken.status.code(), Some(0), "{}", taken.stderr);
    assert!(taken.stdout.contains("UNCONFIRMED"), "{}", taken.stdout);
    session.type_line("during");
    assert_eq!(session.answer(Duration::from_secs(1)), None, "the operator is cut off");

    let status = wait_status(&gateways, Side::A, |it| it["configuration"]["rollbacks"] == 1);
    assert_eq!(status["configuration"]["state"], "confirmed");
    assert_eq!(session.answer(PATIENCE).as_deref(), Some("during"), "the connection lives on");
    session.type_line("after");
    assert_eq!(session.answer(PATIENCE).as_deref(), Some("after"));

    assert!(gateways.log(Side::A).contains("nobody confirmed it within 10 s"));
    let checked = say(&lab, &["status", NAMES[0], "--check"]);
    assert_eq!(checked.status.code(), Some(1), "somebody should be woken");
    assert!(checked.stdout.contains("was taken back"), "{}", checked.stdout);

    // What was taken back is not taken again by itself, and what is new is.
    let again = say(&lab, &["reload", NAMES[0]]);
    assert_eq!(again.status.code(), Some(1));
    assert!(again.stderr.contains("has not changed since"), "{}", again.stderr);
    configure(&lab, Side::A, &text).unwrap();
    assert_eq!(say(&lab, &["reload", NAMES[0]]).status.code(), Some(0));
    assert_eq!(say(&lab, &["status", NAMES[0], "--check"]).status.code(), Some(0));
}

#[test]
fn rules_of_a_trial_go_with_it_and_others_may_be_taken_at_once() {
    let Some(Stand { _turn, lab }) = stand("rules_of_a_trial_go_with_it") else { return };
    let rules = lab.folder().join("trial.rules");
    let write = |count: u32| {
        let rule = |sid| format!("alert ip any any -> any any (ttl:1; sid:{sid};)\n");
        std::fs::write(&rules, (1..=count).map(rule).collect::<String>()).unwrap();
    };
    write(1);
    let table = format!("\n[rules]\npaths = {rules:?}\nmode = \"watch\"\n");
    let setup = Setup { tables_of_a: table, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    let runs = |it: &Value| it["pairs"][0]["detection"]["rules"].as_u64();

    write(3);
    let taken = say(&lab, &["reload", NAMES[0], "--confirm-within", "2s"]);
    assert_eq!(taken.status.code(), Some(0), "{}", taken.stderr);
    wait_status(&gateways, Side::A, |it| runs(it) == Some(3));
    let back = |it: &Value| it["configuration"]["rollbacks"] == 1 && runs(it) == Some(1);
    wait_status(&gateways, Side::A, back);
    // The file still has three.
    let again = say(&lab, &["reload", NAMES[0]]);
    assert_eq!(again.status.code(), Some(1));
    assert!(again.stderr.contains("has not changed since"), "{}", again.stderr);
    write(2);
    let mended = say(&lab, &["reload", NAMES[0]]);
    assert_eq!(mended.status.code(), Some(0), "{}", mended.stderr);
    wait_status(&gateways, Side::A, |it| runs(it) == Some(2));
}

#[test]
fn what_is_confirmed_stays_and_is_what_a_killed_gateway_comes_up_with() {
    let Some(Stand { _turn, lab }) = stand("what_is_confirmed_stays") else { return };
    let (setup, mut gateways, [text, cut]) = forwarding(&lab);
    let nothing = say(&lab, &["confirm", NAMES[0]]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(nothing.stderr.contains("nothing waits to be confirmed"), "{}", nothing.stderr);

    let marked = text.replace("[[pair]]", "[[pair]]\nicrc = \"off\"");
    configure(&lab, Side::A, &marked).unwrap();
    say(&lab, &["reload", NAMES[0], "--confirm-within", "1h", "--json"]);
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["configuration"]["state"], "unconfirmed");
    assert!(status["configuration"]["seconds_left"].as_f64().unwrap() > 3000.0);
    let shown = say(&lab, &["status", NAMES[0]]).stdout;
    assert!(shown.contains("CONFIGURATION 2 IS UNCONFIRMED"), "{shown}");

    // Until it is decided, no other is taken.
    let second = say(&lab, &["reload", NAMES[0]]);
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stderr.contains("is unconfirmed for another"), "{}", second.stderr);
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["reloads_refused"] == 2);

    let confirmed = say(&lab, &["confirm", NAMES[0], "--json"]);
    let confirmed: Value = serde_json::from_str(&confirmed.stdout).unwrap();
    assert_eq!((&confirmed["state"], &confirmed["epoch"]), (&"confirmed".into(), &2.into()));

    // Killed during the next trial, it comes up with this one, whatever the file says.
    configure(&lab, Side::A, &cut).unwrap();
    say(&lab, &["reload", NAMES[0], "--confirm-within", "1h"]);
    assert!(!passes(&lab));
    gateways.end(Side::A, Signal::KILL).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    wait_until_it_flows(&lab);
    let status = gateways.status(Side::A).unwrap();
    let path = status["configuration"]["path"].as_str().unwrap();
    let in_force = std::fs::read_to_string(path).unwrap();
    assert_eq!(in_force, marked, "byte for byte what was confirmed");
    assert!(gateways.log(Side::A).contains("ended while a configuration was unconfirmed"));
    // A second restart forgets nothing; stopped during a trial is the same.
    gateways.end(Side::A, Signal::TERM).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    wait_until_it_flows(&lab);
}

#[test]
fn a_trial_by_weir_up_goes_back_in_place_or_by_a_new_start() {
    let Some(Stand { _turn, lab }) = stand("a_trial_by_weir_up") else { return };
    let (_, mut gateways, [_, cut]) = forwarding(&lab);
    // `[limits]` takes a new start; `default` does not.
    for more in ["", "\n[limits]\nflows = 4096\n"] {
        gateways.end(Side::A, Signal::TERM).unwrap();
        let file = configure(&lab, Side::A, &format!("{cut}{more}")).unwrap();
        let mut command = lab.gateway(Side::A).command(WEIR);
        command.arg("up").arg(&file).args(["--confirm-within", "10s"]);
        let daemon = gateways.daemon(Side::A);
        *daemon = Running::start(&mut command).unwrap();
        daemon.wait_for("is UNCONFIRMED", PATIENCE).unwrap();
        assert!(!passes(&lab), "the trial drops everything");
        wait_until_it_flows(&lab);
        let status = gateways.status(Side::A).unwrap();
        assert_eq!(status["configuration"]["state"], "confirmed");
        assert_eq!(status["configuration"]["rollbacks"], 1);
        let started_again = status["configuration"]["epoch"] == 1;
        assert_eq!(started_again, !more.is_empty());
    }
}

/// `weir up --confirm-within` of a gateway that never ran, to its end.
fn first_trial(lab: &Lab) -> Finished {
    let file = lab.folder().join(format!("{}.toml", NAMES[0]));
    let mut command = lab.gateway(Side::A).command(WEIR);
    let mut running =
        Running::start(command.arg("up").arg(file).args(["--confirm-within", "10s"])).unwrap();
    running.wait_for("is UNCONFIRMED", PATIENCE).unwrap();
    assert!(!passes(lab), "the trial drops everything");
    running.finish(PATIENCE).unwrap()
}

#[test]
fn a_first_configuration_that_nobody_confirms_leaves_the_ports_as_they_were() {
    let Some(Stand { _turn, lab }) = stand("a_first_configuration") else { return };
    let setup = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &setup).unwrap().map(|text| text.replace(FORWARD, DROP));
    configure(&lab, Side::A, &texts[0]).unwrap();
    bridge(&lab);
    let ended = first_trial(&lab);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("nobody confirmed it"), "{}", ended.stderr);
    interrupt::until("answer through the bridges", PATIENCE, || Ok(passes(&lab))).unwrap();

    // The same text does not start by itself, as a service manager would have it.
    let mut command = lab.gateway(Side::A).command(WEIR);
    let file = lab.folder().join(format!("{}.toml", NAMES[0]));
    let again = Running::start(command.arg("up").arg(file)).unwrap().finish(SHORT).unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", again.stderr);
    assert!(again.stderr.contains("try it again with --confirm-within"), "{}", again.stderr);
    assert!(passes(&lab));

    // A guard that was on is on.
    assert_eq!(guard(&lab, Side::A, &["on"]).status.code(), Some(0));
    assert_eq!(first_trial(&lab).status.code(), Some(3));
    assert!(!passes(&lab), "the guard was on, and is");
    assert_eq!(guard(&lab, Side::A, &["off"]).status.code(), Some(0));
    interrupt::until("answer through the bridges", PATIENCE, || Ok(passes(&lab))).unwrap();
}

/// `weir reload` on a terminal of its own, whose keys are what is written to its input. In place of
/// the shell (`exec`), which would die of a Ctrl-C for itself.
fn at_a_terminal(lab: &Lab) -> Child {
    let words = format!(
        "exec {WEIR} reload {} --confirm-within 1h --run-dir {}",
        NAMES[0],
        run_folder(lab, Side::A).display()
    );
    let mut script = Command::new("script");
    script.args(["-qefc", &words, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    script.spawn().unwrap()
}

#[test]
fn at_a_terminal_enter_confirms_and_ctrl_c_takes_back() {
    if process::require(&["script"]).is_err() {
        return eprintln!("SKIPPED: at_a_terminal needs `script` (bsdutils)");
    }
    let Some(Stand { _turn, lab }) = stand("at_a_terminal") else { return };
    let (_, gateways, [text, cut]) = forwarding(&lab);
    let marked = text.replace("[[pair]]", "[[pair]]\nicrc = \"off\"");
    for (key, text, code, rollbacks) in [(b"\x03", &cut, 3, 1), (b"\n", &marked, 0, 1)] {
        configure(&lab, Side::A, text).unwrap();
        let mut terminal = at_a_terminal(&lab);
        wait_status(&gateways, Side::A, |it| it["configuration"]["state"] == "unconfirmed");
        let mut keys = terminal.stdin.take().unwrap();
        keys.write_all(key).unwrap();
        interrupt::until("end of `weir reload`", PATIENCE, || Ok(terminal.try_wait()?.is_some()))
            .unwrap();
        assert_eq!(terminal.wait().unwrap().code(), Some(code));
        let status = gateways.status(Side::A).unwrap();
        assert_eq!(status["configuration"]["state"], "confirmed");
        assert_eq!(status["configuration"]["rollbacks"], rollbacks);
    }
}
