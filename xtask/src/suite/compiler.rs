//! What compiles the tests. clippy's driver is rustc with lints: a build by it says all that `cargo
//! clippy` would, which would check every package once more (docs/adr/0259).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// How cargo compiles and documents here.
pub(super) struct Compiler {
    driver: PathBuf,
    /// Stands in for libFuzzer, whose C++ is compiled for who runs fuzz targets alone.
    fuzzer: PathBuf,
    rustdoc: PathBuf,
    docs: PathBuf,
}

impl Compiler {
    /// Finds clippy, and makes a library with an empty `main` to link fuzz targets with.
    ///
    /// # Errors
    /// clippy is not installed, or there is no C compiler.
    pub(super) fn find(root: &Path) -> Result<Self> {
        let output = Command::new("rustc").args(["--print", "sysroot"]).output();
        let output = output.context("cannot run rustc")?;
        let sysroot = String::from_utf8(output.stdout)?;
        let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
        if !driver.is_file() {
            bail!("no clippy; try `rustup component add clippy`");
        }
        let target = root.join("target");
        let fuzzer = target.join("libfuzzer.a");
        let script = "echo 'int main(void) { return 0; }' | cc -x c -c -o \"$1.o\" - && \
                      rm -f \"$1\" && ar rcs \"$1\" \"$1.o\"";
        let mut shell = Command::new("sh");
        let status = shell.args(["-c", script, "sh"]).arg(&fuzzer).stdin(Stdio::null()).status()?;
        if !status.success() {
            bail!("no {}: `cc` and `ar` are needed", fuzzer.display());
        }
        let (rustdoc, docs) = (root.join("xtask/rustdoc.sh"), target.join("doc"));
        Ok(Self { driver, fuzzer, rustdoc, docs })
    }

    /// Sets it for a command of cargo. What others' packages are compiled to is the same without.
    pub(super) fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("RUSTC_WORKSPACE_WRAPPER", &self.driver)
            // As `cargo clippy -- -D warnings` tells its driver.
            .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")
            .env("CUSTOM_LIBFUZZER_PATH", &self.fuzzer)
            .env("RUSTDOC", &self.rustdoc)
            .env("DOC_FOLDER", &self.docs)
    }
}
