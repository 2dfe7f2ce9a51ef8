//! SIGHUP loses nothing.

use weir_lab::gateways::configurations;
use weir_lab::traffic::bypass::stream_while;

use super::*;

const RATE_PER_SECOND: u32 = 5000;

#[test]
fn five_reloads_of_both_gateways_lose_alter_and_reorder_nothing() {
    let Some(Stand { _turn, lab }) = stand("five_reloads_lose_nothing") else { return };
    let setup = sealed();
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, RATE_PER_SECOND, || {
        for round in 2..=6 {
            pause(500);
            let icrc = if round % 2 == 0 { "off" } else { "check" };
            let lines = format!("icrc = \"{icrc}\"\nroce_mtu = {}", 1024 << (round % 3));
            reload(&lab, &mut gateways, &texts, &lines, round);
        }
    })
    .unwrap();
    assert!(streamed.sent > 10_000, "{streamed:?}");
    assert!(streamed.is_exact(), "{streamed:?}");
}

/// So many different rules.
fn rules(count: u32) -> String {
    let rule = |number: u32| {
        format!(
            "alert tcp any any -> any any (content:\"mark{number:08x}\"; nocase; \
             pcre:\"/mark[0-9a-f]{{8}}/\"; sid:{};)\n",
            number + 1
        )
    };
    (0..count).map(rule).collect()
}

#[test]
fn while_many_rules_are_compiled_a_gateway_answers_and_takes_one_configuration_at_a_time() {
    const RULES: u32 = 30_000;
    let Some(Stand { _turn, lab }) = stand("answers_while_it_compiles") else { return };
    let mut gateways = Gateways::start(&lab, &Setup::new(WEIR, Protection::Plain)).unwrap();
    wait_until_it_flows(&lab);
    let file = lab.folder().join("many.rules");
    std::fs::write(&file, rules(RULES)).unwrap();
    let name = weir_lab::gateways::NAMES[Side::A.index()];
    let text = std::fs::read_to_string(lab.folder().join(format!("{name}.toml"))).unwrap();
    let tables = format!("{text}\n[rules]\npaths = [\"{}\"]\n", file.display());
    configure(&lab, Side::A, &tables).unwrap();
    let run_folder = weir_lab::gateways::run_folder(&lab, Side::A);
    let reload = || {
        let mut command = Command::new(WEIR);
        command.args(["reload", name, "--run-dir"]).arg(&run_folder);
        command.output().unwrap()
    };
    let epoch = || number(&gateways.status(Side::A).unwrap(), "/configuration/epoch");
    assert_eq!(epoch(), 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(reload);
        // Each is an answer, and of the configuration before as long as the next is compiled.
        let mut answers_before = 0;
        while !first.is_finished() {
            answers_before += u32::from(epoch() == 1);
            if answers_before == 1 {
                let second = reload();
                let words = String::from_utf8_lossy(&second.stderr).into_owned();
                assert!(words.contains("another configuration is being read"), "{words}");
            }
        }
        assert!(answers_before > 1, "it says nothing while it compiles");
        let first = first.join().unwrap();
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    });
    assert_eq!(epoch(), 2);
    // A signal that comes while one is read is not forgotten.
    let daemon = gateways.daemon(Side::A);
    daemon.signal(Signal::HUP).unwrap();
    pause(50);
    daemon.signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["configuration"]["epoch"] == 4);
}

#[test]
fn what_would_leave_alerts_or_packets_unseen_has_the_configuration_refused() {
    let Some(Stand { _turn, lab }) = stand("what_would_leave_unseen") else { return };
    let gateways = Gateways::start(&lab, &Setup::new(WEIR, Protection::Plain)).unwrap();
    let name = weir_lab::gateways::NAMES[Side::A.index()];
    let text = std::fs::read_to_string(lab.folder().join(format!("{name}.toml"))).unwrap();
    let rules = lab.folder().join("one.rules");
    std::fs::write(&rules, self::rules(1)).unwrap();
    let reload = |eve: &str| {
        let tables = format!("{text}\n[rules]\npaths = {rules:?}\neve = \"{eve}\"\n");
        configure(&lab, Side::A, &tables).unwrap();
        let mut command = Command::new(WEIR);
        let run_folder = weir_lab::gateways::run_folder(&lab, Side::A);
        command.args(["reload", name, "--run-dir"]).arg(run_folder).output().unwrap()
    };
    let epoch = || number(&gateways.status(Side::A).unwrap(), "/configuration/epoch");
    let refused = reload("/proc/nope/eve.json");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("/proc/nope/eve.json"), "{said}");
    assert_eq!(epoch(), 1);
    assert!(reload("eve.json").status.success());
    assert_eq!(epoch(), 2);

    // Nor does a file that is emptied, or half replaced, leave all unseen.
    std::fs::write(&rules, "# none\n").unwrap();
    let refused = reload("eve.json");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no rule any more"), "{said}");
    assert_eq!(epoch(), 2);
}
