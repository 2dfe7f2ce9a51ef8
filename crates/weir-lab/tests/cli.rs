//! The program as `weir lab` and `weir prove` start it: help and exit codes, no privilege needed.

use std::process::{Command, Output};

fn weir_lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-lab")).args(arguments).output().unwrap()
}

#[test]
fn every_command_has_help_with_an_example_and_says_weir() {
    for command in [&["lab"][..], &["lab", "demo"], &["lab", "send"], &["prove"]] {
        let output = weir_lab(&[command, &["--help"]].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(text.contains("Example"), "{command:?}:\n{text}");
        assert!(text.contains(&format!("Usage: weir {}", command.join(" "))), "{text}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for arguments in [&[][..], &["fly"], &["lab", "fly"], &["prove", "--colour"]] {
        assert_eq!(weir_lab(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
