//! A guest with a simulated network card that does ESP: `espnic`, see its folder. Its kernel is
//! Linux 6.12, unpacked by `cargo xtask packages test` and not installed:
//!
//! ```text
//!   ~/.cache/weir/linux-6.12/  boot  lib/modules  usr/src: headers  espnic: our module, built
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::GuestKernel;
use crate::process;

/// The module's source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/espnic");
const FILES: [&str; 5] = ["Makefile", "espnic.h", "device.c", "control.c", "path.c"];

impl GuestKernel {
    /// Linux 6.12 with the module `espnic`, which its guests have loaded: in them,
    /// `ip link add p0 link LOWER type espnic` makes a card. Further modules come by `modprobe`.
    ///
    /// # Errors
    /// The kernel is not there, or the module cannot be built; says what to do.
    pub fn with_esp_nic() -> Result<Self> {
        let tools = ["qemu-system-x86_64", "busybox", "cpio", "modprobe", "make", "gcc-12"];
        process::require(&tools)?;
        let home = std::env::var_os("HOME").context("no HOME")?;
        let tree = Path::new(&home).join(".cache/weir/linux-6.12");
        let absent = "no Linux 6.12 unpacked; try `cargo xtask packages test`";
        ensure!(tree.join("complete").is_file(), absent);
        let mut versions = fs::read_dir(tree.join("lib/modules"))?;
        let version = versions.next().context(absent)??.file_name();
        let version = version.into_string().ok().context(absent)?;
        build(&tree, &version)?;
        Ok(Self { image: image(&tree, &version), version, unpacked: Some(tree) })
    }
}

/// Shell lines for a guest: its kernel's modules where modprobe looks, and the card's loaded.
pub(super) fn setup(tree: &Path, version: &str) -> String {
    let tree = format!("/run/machine{}", tree.display());
    format!(
        "mkdir -p /lib/modules\n\
         ln -sfn {tree}/lib/modules/{version} /lib/modules/{version}\n\
         insmod {tree}/espnic/espnic.ko\n"
    )
}

/// Builds the module unless it stands there, made of this source for this kernel.
fn build(tree: &Path, version: &str) -> Result<()> {
    let source = Path::new(SOURCE);
    let mut made_of = format!("{version}\n");
    for file in FILES {
        made_of += &fs::read_to_string(source.join(file))?;
    }
    let built = tree.join("espnic");
    let note = built.join("made-of");
    if built.join("espnic.ko").is_file() && fs::read_to_string(&note).is_ok_and(|it| it == made_of)
    {
        return Ok(());
    }
    fs::create_dir_all(&built)?;
    // Tests of several processes may do this at once: each in a folder of its own.
    let folder = tempfile::tempdir_in(tree)?;
    for file in FILES {
        fs::copy(source.join(file), folder.path().join(file))?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(headers(tree, version));
    make.arg(format!("M={}", folder.path().display()));
    // Type information would need pahole.
    make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]);
    process::run(&mut make, Duration::from_secs(120)).context("espnic cannot be built")?;
    fs::rename(folder.path().join("espnic.ko"), built.join("espnic.ko"))?;
    let draft = folder.path().join("made-of");
    fs::write(&draft, made_of)?;
    fs::rename(draft, note)?;
    Ok(())
}

fn image(tree: &Path, version: &str) -> PathBuf {
    tree.join(format!("boot/vmlinuz-{version}"))
}

fn headers(tree: &Path, version: &str) -> PathBuf {
    tree.join(format!("usr/src/linux-headers-{version}"))
}
