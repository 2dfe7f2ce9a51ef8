//! The program as a user meets it: exit codes and words, no privilege needed.

use std::path::Path;
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stdout(output)))
}

const COMMANDS: [&[&str]; 8] = [
    &[],
    &["up"],
    &["check"],
    &["doctor"],
    &["read"],
    &["status"],
    &["drops"],
    &["keys", "generate"],
];

#[test]
fn every_command_has_help_with_an_example() {
    for command in COMMANDS {
        let output = weir(&[command, &["--help"]].concat());
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(text.contains("Example") || text.contains("example"), "{command:?}:\n{text}");
    }
}

#[test]
fn manual_pages_and_completions_say_what_the_command_line_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(weir(&["manual", path]).status.success());
    let page = |name: &str| std::fs::read_to_string(folder.path().join("man1").join(name)).unwrap();
    assert!(page("weir.1").contains("weir\\-up(1)"), "{}", page("weir.1"));
    for (name, said) in [
        ("weir-up.1", "confirm\\-within"),
        ("weir-evidence-cut.1", "\\-\\-around"),
        ("weir-keys-generate.1", "\\-\\-cipher"),
    ] {
        assert!(page(name).contains(said), "{name}: {}", page(name));
    }
    // As bash itself completes.
    let script = format!(
        "source {path}/completions/weir.bash; COMP_WORDS=(weir expl); COMP_CWORD=1; \
         _weir weir expl weir; echo ${{COMPREPLY[@]}}"
    );
    let bash = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(stdout(&bash).trim(), "explain", "{}", stderr(&bash));
    let refused = weir(&["manual", "/proc/nowhere"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("/proc/nowhere"));
}

#[test]
fn the_commands_that_print_data_speak_json() {
    for command in [&["check"][..], &["doctor"], &["read"], &["status"], &["drops"]] {
        let text = stdout(&weir(&[command, &["--help"]].concat()));
        assert!(text.contains("--json"), "{command:?}:\n{text}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_so() {
    for arguments in [&[][..], &["fly"], &["check"], &["status", "--colour"], &["up", "a", "b"]] {
        let output = weir(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("Usage"), "{}", stderr(&output));
    }
}

#[test]
fn a_value_that_cannot_be_meant_exits_with_2() {
    let long = "x".repeat(201);
    let cases: [(&[&str], &str); 5] = [
        (&["block", "add", "0.0.0.0/0"], "--force"),
        (&["allow", "add", "::/0"], "--force"),
        (&["block", "add", "192.0.2.7", "--reason", &long], "200 characters"),
        (&["flows", "--from", "2500-01-01T00:00:00Z"], "--from is not before"),
        (&["evidence", "cut", "-w", "x", "--folder", "/", "no", "words"], "pcap-filter"),
    ];
    for (arguments, said) in cases {
        let output = weir(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_full_disk_behind_standard_output_exits_with_1_and_says_so() {
    for arguments in [&["explain", "blocked"][..], &["doctor"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("weir: standard output cannot be written"), "{said}");
    }
}

#[test]
fn check_takes_a_file_by_a_relative_name_as_by_its_whole_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("r.rules"), "alert ip any any -> any any (sid:1;)").unwrap();
    let text = "[gateway]\nname = \"a\"\n[[pair]]\nname = \"p\"\nhost = \"h0\"\nwire = \"w0\"\n\
                default = \"forward\"\n[rules]\npaths = \"r.rules\"\neve = \"logs/eve.json\"\n";
    std::fs::write(folder.path().join("a.toml"), text).unwrap();
    for name in [Path::new("a.toml"), &folder.path().join("a.toml")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("check").arg(name).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn check_names_place_and_remedy_and_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.toml");
    let path = file.to_str().unwrap();
    let text = "[gateway]\nname = \"g\"\n\n[[pair]]\nhost = \"h\"\nwire = \"w\"\nspeed = 9\n\
                default = \"forward\"\n";
    std::fs::write(&file, text).unwrap();

    let refused = weir(&["check", path]);
    assert_eq!(refused.status.code(), Some(2));
    let place = format!("{path}:7:1: error: unknown field `speed`");
    assert!(stderr(&refused).contains(&place), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("remedy: write one of"), "{}", stderr(&refused));

    let listed = json(&weir(&["check", path, "--json"]));
    assert_eq!(listed["accepted"], false);
    assert_eq!(listed["problems"][0]["line"], 7);

    std::fs::write(&file, text.replace("speed = 9\n", "")).unwrap();
    let accepted = weir(&["check", path]);
    assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    assert!(stdout(&accepted).contains("accepted"));

    let missing = weir(&["check", "/nonexistent/weir.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

#[test]
fn generated_keys_make_two_configurations_that_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    for cipher in ["aes-256-gcm", "aes-128-gcm"] {
        let names = [format!("a{cipher}"), format!("b{cipher}")];
        let arguments =
            ["keys", "generate", &names[0], &names[1], "--directory", folder, "--cipher", cipher];
        let made = weir(&arguments);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        for gateway in stdout(&made).split("# in the configuration of ").skip(1) {
            let (_, associations) = gateway.split_once('\n').unwrap();
            let file = directory.path().join("weir.toml");
            let text = format!(
                "[gateway]\nname = \"g\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\n\
                 address = \"192.0.2.1/24\"\n[[peer]]\nname = \"p\"\nmode = \"ethernet\"\n\
                 endpoint = \"192.0.2.2\"\nprotects = \"everything\"\n{associations}"
            );
            std::fs::write(&file, text).unwrap();
            let checked = weir(&["check", file.to_str().unwrap()]);
            assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
            let warned = stderr(&checked);
            let absent = ["`h` is not there", "`w` is not there"].map(|it| warned.contains(it));
            assert_eq!((warned.matches("warning:").count(), absent), (2, [true; 2]), "{warned}");
        }
        let again = weir(&arguments);
        assert_eq!(again.status.code(), Some(1), "keys are never overwritten");
        assert!(stderr(&again).contains("never overwritten"), "{}", stderr(&again));
    }
}

#[test]
fn status_without_a_gateway_exits_with_1_and_says_where_it_looked() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    for command in ["status", "drops"] {
        let output = weir(&[command, "--run-dir", folder]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(folder), "{}", stderr(&output));
        let named = weir(&[command, "gw-z", "--run-dir", folder]);
        assert!(stderr(&named).contains("gw-z.sock"), "{}", stderr(&named));
    }
}

#[test]
fn up_refuses_a_broken_configuration_before_it_touches_anything() {
    let output = weir(&["up", "/nonexistent/weir.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn doctor_measures_the_cipher_and_names_what_to_change() {
    let report = json(&weir(&["doctor", "lo", "--json"]));
    let findings = report["findings"].as_array().unwrap();
    let figures: Vec<_> = findings
        .iter()
        .filter(|it| it["area"] == "speed" && it["name"] != "AES-GCM code")
        .map(|it| it["found"].as_str().unwrap())
        .collect();
    assert_eq!(figures.len(), 6, "two sizes, two keys, the ICRC, and a tag in its place");
    assert!(figures.iter().all(|found| found.ends_with("Gb/s a core")), "{figures:?}");
    for finding in findings {
        let good = finding["grade"] == "good";
        assert_eq!(finding["change"].is_null(), good, "advice says what to change: {finding}");
    }
    let missing = weir(&["doctor", "nosuchport0"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stdout(&missing).contains("nosuchport0"), "{}", stdout(&missing));
}

#[test]
fn the_lines_for_a_preshared_key_are_those_of_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ab.key");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["keys", "preshared"]).arg(&file).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let table: toml::Table = lines.parse().unwrap();
    assert_eq!(table["preshared_key_file"].as_str(), file.to_str(), "{lines}");
    assert_eq!(table["tag"]["key_file"].as_str(), file.to_str(), "for icrc-tag: {lines}");
}

#[test]
fn without_the_labs_program_beside_it_weir_lab_says_what_to_install() {
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("weir");
    let built = env!("CARGO_BIN_EXE_weir");
    std::fs::hard_link(built, &alone).or_else(|_| std::fs::copy(built, &alone).map(drop)).unwrap();
    for command in ["lab", "prove"] {
        let mut weir = Command::new(&alone);
        let output = weir.args([command, "--help"]).env("PATH", "").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("weir-lab"), "{}", stderr(&output));
    }
}
