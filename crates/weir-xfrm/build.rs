//! Compiles the library that is preloaded into front ends, with the C compiler that links.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-env-changed=TARGET_CC");
    println!("cargo::rerun-if-env-changed=CC");
    let variable = |name: &str| env::var(name).ok();
    let (host, target) = (variable("HOST"), variable("TARGET").unwrap_or_default());
    let compiler = variable("TARGET_CC").or_else(|| variable("CC")).unwrap_or_else(|| {
        if host.as_deref() == Some(&target) {
            "cc".to_owned()
        } else {
            let architecture = target.split('-').next().unwrap_or_default();
            format!("{architecture}-linux-gnu-gcc")
        }
    });
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .args(["-fvisibility=hidden", "-fstack-protector-strong", "-Wl,-z,now", "-s"])
        .args(["preload/xfrm.c", "-ldl", "-lpthread", "-o"])
        .arg(out.join("libweir_xfrm.so"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} failed on preload/xfrm.c: {status}"),
        Err(error) => panic!("cannot run {compiler} ({error}): `apt install gcc libc6-dev`"),
    }
}
