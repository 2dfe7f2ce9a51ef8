//! `weir vpn` without a gateway: who gets an address, and what is left of who gets none.

use std::path::Path;
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
}

/// The path of a configuration whose pool has five addresses for clients.
fn configuration(folder: &Path) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    assert!(weir(&["keys", "identity", &path("gw.identity")]).status.success());
    let text = format!(
        "[gateway]\nname = \"gw\"\nrun_dir = \"{}\"\nstate_dir = \"{}\"\n\
         [keying]\nidentity_file = \"gw.identity\"\n\
         [[pair]]\nhost = \"h\"\nwire = \"w\"\naddress = \"192.0.2.1/24\"\n\
         [pair.vpn]\nclients = \"{}\"\npool = \"10.9.0.0/29\"\nendpoint = \"192.0.2.1:51840\"\n",
        path("run"),
        path("state"),
        path("clients")
    );
    std::fs::write(path("gw.toml"), text).unwrap();
    path("gw.toml")
}

#[test]
fn a_pool_that_is_used_up_gives_nobody_an_address_until_somebody_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    // Another gateway runs here, or has left its socket: that is none of this one's concern.
    std::fs::create_dir(folder.path().join("run")).unwrap();
    std::fs::write(folder.path().join("run/other.sock"), "").unwrap();
    assert!(weir(&["vpn", "list", &config]).status.success());
    let add = |name: &str| weir(&["vpn", "add", &config, name]);
    for name in ["a", "b", "c", "d", "e"] {
        let added = add(name);
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    }
    let file = folder.path().join("f.conf").display().to_string();
    let files = || std::fs::read_dir(folder.path().join("clients")).unwrap().count();
    let before = files();
    let refused = weir(&["vpn", "add", &config, "f", "-o", &file]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("no address is left in 10.9.0.0/29"), "{words}");
    assert!(!Path::new(&file).exists() && files() == before, "nothing of it is left");
    assert_eq!(add("c").status.code(), Some(1), "a name that is taken");
    assert!(weir(&["vpn", "revoke", &config, "c"]).status.success());
    let added = String::from_utf8(add("f").stdout).unwrap();
    assert!(added.contains("Address = 10.9.0.4/32"), "{added}");
    for name in ["../f", "", "a.b"] {
        assert_ne!(add(name).status.code(), Some(0), "{name} is no name");
    }
}

#[test]
fn keys_of_one_kind_are_not_taken_for_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    assert!(weir(&["keys", "preshared", &path("shared")]).status.success());
    let refused = weir(&["keys", "public", &path("shared")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it is a preshared key"));
    std::fs::copy(path("shared"), path("gw.identity")).unwrap();
    let refused = weir(&["check", &config]);
    assert_ne!(refused.status.code(), Some(0));
    let words = [refused.stdout, refused.stderr].concat();
    assert!(String::from_utf8_lossy(&words).contains("it is a preshared key"));
}

#[test]
fn without_a_configuration_a_running_gateway_is_needed_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().display().to_string();
    for command in [&["vpn", "add", "laptop"][..], &["access", "check"], &["vpn", "list"]] {
        let refused = weir(&[command, &["--run-dir", &run_dir]].concat());
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("no gateway runs here"), "{words}");
    }
    let half = weir(&["vpn", "limit", "gw.toml", "laptop"]);
    assert_eq!(half.status.code(), Some(2));
}
