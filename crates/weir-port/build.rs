//! Compiles the kernel programs in `bpf/` with clang for the `bpf` target.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").expect("cargo sets the target's endianness");
    let target = if endian == "little" { "bpfel" } else { "bpfeb" };
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's name");
    // Debian keeps asm/types.h per architecture.
    let headers = format!("/usr/include/{architecture}-linux-gnu");

    let entries = std::fs::read_dir("bpf").expect("the kernel programs are in bpf/");
    for source in entries.map(|entry| entry.expect("bpf/ can be listed").path()) {
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".bpf.c") else { continue };
        compile(&clang, target, &headers, &source, &out.join(format!("{stem}.bpf.o")));
    }
}

fn compile(clang: &str, target: &str, headers: &str, source: &Path, object: &Path) {
    let status = Command::new(clang)
        .args(["-g", "-O2", "-Wall", "-Werror", "-target", target, "-mcpu=v3", "-I", headers, "-c"])
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed on {}: {status}", source.display()),
        Err(error) => panic!(
            "cannot run {clang} ({error}): the kernel programs need `apt install clang libbpf-dev`"
        ),
    }
}
