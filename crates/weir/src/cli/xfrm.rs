//! `weir xfrm`: a program that speaks NETLINK_XFRM speaks to a gateway instead of the kernel.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::args::XfrmArgs;

/// Names the gateway's socket to the preloaded library.
const SOCKET_VARIABLE: &str = "WEIR_XFRM_SOCKET";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Becomes the program that is named; returns only when that fails.
///
/// # Errors
/// There is no gateway with front ends, the library cannot be written, or there is no such program.
pub fn run(args: &XfrmArgs) -> Result<ExitCode> {
    let socket = find_socket(&args.run_dir, args.pair.as_deref())?;
    let library = install(&args.library_dir)?;
    let [program, arguments @ ..] = &args.command[..] else { bail!("name a program after `--`") };
    let mut preload = OsString::from(&library);
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|it| !it.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let error = Command::new(program)
        .args(arguments)
        .env(PRELOAD_VARIABLE, preload)
        .env(SOCKET_VARIABLE, socket)
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The socket of the only pair with front ends, or of the one named `PAIR` or `GATEWAY.PAIR`.
fn find_socket(run_dir: &Path, pair: Option<&str>) -> Result<PathBuf> {
    let entries = fs::read_dir(run_dir).with_context(|| {
        format!("no gateway runs here: cannot read {} (--run-dir)", run_dir.display())
    })?;
    let name = |path: &Path| path.file_stem().map(|it| it.to_string_lossy().into_owned());
    let wanted = |path: &PathBuf| {
        let is_socket = fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
        let name = name(path).unwrap_or_default();
        let is_named = pair.is_none_or(|pair| name == pair || name.ends_with(&format!(".{pair}")));
        is_socket && is_named && path.extension().is_some_and(|it| it == "xfrm")
    };
    let mut sockets: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(wanted).collect();
    sockets.sort();
    match &sockets[..] {
        [one] => Ok(one.clone()),
        [] => bail!(
            "no pair{} with `xfrm = true` runs here (looked into {}; --run-dir)",
            pair.map(|it| format!(" `{it}`")).unwrap_or_default(),
            run_dir.display(),
        ),
        several => {
            let names: Vec<_> = several.iter().filter_map(|it| name(it)).collect();
            bail!("several pairs have front ends; choose one by --pair: {}", names.join(", "))
        }
    }
}

/// Writes the library that is preloaded, unless it is there; its name tells its content, so that
/// programs that run with an older one keep it.
fn install(directory: &Path) -> Result<PathBuf> {
    let bytes = weir_xfrm::PRELOAD;
    let path = directory.join(format!("libweir_xfrm-{:08x}.so", crc32fast::hash(bytes)));
    if fs::read(&path).is_ok_and(|found| found == bytes) {
        return Ok(path);
    }
    let failed = || format!("cannot write {} (--library-dir); are you root?", path.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .and_then(|()| {
            // Under another name first: another `weir xfrm` may start at the same moment.
            let draft = path.with_extension(std::process::id().to_string());
            fs::write(&draft, bytes)?;
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
            fs::rename(&draft, &path)
        })
        .with_context(failed)?;
    Ok(path)
}
