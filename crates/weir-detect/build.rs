//! Links Hyperscan, Debian's `libhyperscan-dev`, statically: `weir` starts where the library is not
//! installed. On other processors than x86-64 Vectorscan, its port (docs/adr/0258).

#![allow(clippy::disallowed_methods, reason = "only the detector itself does without these")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WEIR_HYPERSCAN_DIR");
    let folder = folder().unwrap_or_else(|| {
        panic!(
            "libhs.a (Hyperscan) is not here: run `cargo xtask packages build`, or install \
             libhyperscan-dev, or name its folder by WEIR_HYPERSCAN_DIR"
        )
    });
    println!("cargo:rerun-if-changed={}", folder.join("libhs.a").display());
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=hs");
    // Its compiler is C++.
    if let Some(standard) = static_standard_library() {
        println!("cargo:rustc-link-search=native={}", standard.display());
        println!("cargo:rustc-link-lib=static:-bundle=stdc++");
    } else {
        println!("cargo:rustc-link-lib=dylib=stdc++");
    }
    println!("cargo:rustc-link-lib=dylib=m");
}

fn folder() -> Option<PathBuf> {
    if let Some(given) = env::var_os("WEIR_HYPERSCAN_DIR") {
        return Some(PathBuf::from(given));
    }
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folders = [format!("/usr/lib/{machine}-linux-gnu"), "/usr/lib64".into(), "/usr/lib".into()];
    folders.iter().map(PathBuf::from).find(|it| it.join("libhs.a").is_file())
}

/// Where the compiler keeps `libstdc++.a`, if it has one.
fn static_standard_library() -> Option<PathBuf> {
    let target = env::var("TARGET").unwrap_or_default();
    let compiler = if env::var("HOST").is_ok_and(|host| host == target) {
        "gcc".to_owned()
    } else {
        format!("{}-linux-gnu-gcc", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default())
    };
    let output = Command::new(compiler).arg("-print-file-name=libstdc++.a").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = Path::new(path.trim());
    (path.is_absolute() && path.is_file()).then(|| path.parent().map(Path::to_path_buf))?
}
