//! `weir sa export`: the keys of a running gateway's associations, for Wireshark.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::output::OutputFile;
use super::print_json;
use super::status::find_socket;
use crate::api::dto::{AssociationKey, KeysRequest, Request, Response};
use crate::daemon::control::socket;

const HELP: &str = "\
Whoever has these keys reads all that is sealed by them, and can forge it. They are told only to
who may open the gateway's control socket (root), are never logged, and are shown by no other
command. Keys that were agreed and have been renewed since are gone: export before the capture ends.

Examples:
  weir sa export --esp-sa -w ~/.config/wireshark/esp_sa
  tshark -r wire.pcapng -o esp.enable_encryption_decode:TRUE
  weir sa export --esp-sa gw-a --peer gw-b | wc -l

Exit codes:
  0  told
  1  no gateway answers, it has no keys, or the file is not an export's or cannot be written
  2  the command line is wrong";

/// Arguments of `weir sa`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct SaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SaCommand,
}

/// The commands of `weir sa`.
#[derive(Debug, Subcommand)]
pub enum SaCommand {
    /// Tell the SECRET KEYS of the associations in use, in the form that Wireshark reads
    #[command(after_help = HELP)]
    Export(ExportArgs),
}

/// Arguments of `weir sa export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The gateway's name; needed where several run
    pub name: Option<String>,
    /// Yes, tell the keys: lines of Wireshark's table `esp_sa`
    #[arg(long, required = true)]
    pub esp_sa: bool,
    /// Only of this pair of ports
    #[arg(long, value_name = "PAIR")]
    pub pair: Option<String>,
    /// Only of this peer
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// A file for them, readable by its owner only; one that an earlier export wrote is replaced.
    /// Without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Print as JSON, keys included, instead of the table
    #[arg(long, conflicts_with = "write")]
    pub json: bool,
}

/// Runs `weir sa`.
///
/// # Errors
/// No gateway answers, it has no keys, or the file cannot be written.
pub fn run(args: &SaArgs) -> Result<ExitCode> {
    let SaCommand::Export(args) = &args.command;
    let keys = ask(args)?;
    if keys.is_empty() {
        bail!("no association has a key here; is anything sealed (`weir status`)?");
    }
    eprintln!(
        "weir: SECRET KEYS of {} associations follow. Whoever has them reads and forges what is \
         sealed; delete them when the analysis is done.",
        keys.len()
    );
    if args.json {
        print_json(&keys)?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = esp_sa(&keys);
    match &args.write {
        None => print!("{table}"),
        Some(path) => write(path, &table)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces `path` at once, so that who reads it has one table or the other; only what an export
/// wrote.
fn write(path: &Path, table: &str) -> Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("there is no folder {}: make it first", folder.display());
    }
    match fs::read_to_string(path) {
        Ok(before) if before.lines().all(is_exported) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Ok(_) => bail!("{} has other lines than an export's: it is left alone", path.display()),
        Err(error) => bail!("cannot replace {}: {error}", path.display()),
    }
    let output = OutputFile::create(path, true)?;
    output.file().write_all(table.as_bytes())?;
    output.keep()?;
    Ok(())
}

/// Whether [`esp_sa`] makes such lines.
fn is_exported(line: &str) -> bool {
    ["\"IPv4\",\"*\",\"*\",", "\"IPv6\",\"*\",\"*\","].iter().any(|it| line.starts_with(it))
}

fn ask(args: &ExportArgs) -> Result<Vec<AssociationKey>> {
    let socket = find_socket(&args.run_dir, args.name.as_deref())?;
    let request = KeysRequest { pair: args.pair.clone(), peer: args.peer.clone() };
    let response = socket::ask(&socket, &Request::Keys(request)).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    match response {
        Response::Keys(keys) => Ok(keys),
        Response::Error(error) => bail!("the gateway says: {error}"),
        _ => {
            bail!("the gateway does not tell keys: is it an older one?")
        }
    }
}

/// Lines of Wireshark's table of ESP associations: any addresses, since SPIs tell them apart.
fn esp_sa(keys: &[AssociationKey]) -> String {
    let line = |key: &AssociationKey, version: &str| {
        format!(
            "\"{version}\",\"*\",\"*\",\"0x{:08x}\",\"AES-GCM with 16 octet ICV [RFC4106]\",\
             \"0x{}\",\"NULL\",\"\"\n",
            key.spi, key.keying_material
        )
    };
    keys.iter().flat_map(|key| ["IPv4", "IPv6"].map(|version| line(key, version))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_replaces_itself_and_nothing_else_and_a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("esp_sa");
        let line = "\"IPv4\",\"*\",\"*\",\"0x1\"\n";
        for _ in 0..2 {
            write(&file, line).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), line);
        }
        fs::write(&file, "somebody's own\n").unwrap();
        let refused = write(&file, line).unwrap_err().to_string();
        assert!(refused.contains("left alone"), "{refused}");
        let missing = folder.path().join("gone").join("esp_sa");
        let refused = write(&missing, line).unwrap_err().to_string();
        assert!(refused.contains("there is no folder"), "{refused}");
    }
}
