//! `[[sink]]`: who is told of alerts, and of what the gateway did, as they happen.
//!
//! ```toml
//! [[sink]]                        # a receiver of alerts, such as a SIEM; several allowed
//! to = "tcp://192.0.2.9:514"      # udp | tcp | tls
//! format = "syslog"               # [syslog] syslog (RFC 5424) | gelf (1.1) | eve (JSON lines)
//! severity = 3                    # [all] send only alerts from 1 (most severe) to this severity
//! spool_mib = 64                  # [64] TCP, TLS: MiB spooled on disk while the sink is down
//! authority_file = "ca.pem"       # TLS: PEM file of CAs that may sign the sink's certificate
//! certificate_file = "gw.pem"     # [none] TLS: the gateway's own certificate, with `key_file`
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use weir_store::sink::{Endpoint, SiemFormat, SiemSink, TlsFiles};

use super::export;
use super::problem::Problems;

/// Sinks, at most: each has a thread and a queue of some MiB.
const SINKS_MAX: usize = 16;

/// MiB on disk for a sink that is down: some hundred thousand alerts.
const SPOOL_MIB_DEFAULT: u32 = 64;
/// The least: a few segments of a spool.
const SPOOL_MIB_MIN: u32 = 4;
/// The most.
const SPOOL_MIB_MAX: u32 = 65_536;

/// `[[sink]]`, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Written {
    pub to: Spanned<String>,
    #[serde(default)]
    pub format: Format,
    pub severity: Option<Spanned<u8>>,
    pub spool_mib: Option<Spanned<u32>>,
    pub authority_file: Option<Spanned<PathBuf>>,
    pub certificate_file: Option<Spanned<PathBuf>>,
    pub key_file: Option<Spanned<PathBuf>>,
}

/// How events are written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// RFC 5424.
    #[default]
    Syslog,
    /// GELF 1.1.
    Gelf,
    /// EVE's JSON.
    Eve,
}

/// The sinks of a file; spools lie below `state_dir`.
pub(super) fn resolve(
    written: &[(Range<usize>, Written)],
    directory: &Path,
    state_dir: &Path,
    gateway: &str,
    problems: &mut Problems,
) -> Vec<SiemSink> {
    if let Some((span, _)) = written.get(SINKS_MAX) {
        let what = format!("{} tables [[sink]]", written.len());
        problems.error(span.clone(), what, format!("at most {SINKS_MAX} are possible"));
    }
    let mut sinks: Vec<SiemSink> = Vec::new();
    for (_, table) in written {
        let Some(sink) = sink(table, directory, state_dir, gateway, problems) else { continue };
        let is_stream = sink.spool.is_some();
        let is_same = |it: &SiemSink| it.address == sink.address && it.spool.is_some() == is_stream;
        if sinks.iter().any(is_same) {
            let what = format!("a second [[sink]] to {}", table.to.get_ref());
            problems.error(table.to.span(), what, "name each sink once");
        }
        sinks.push(sink);
    }
    sinks
}

fn sink(
    table: &Written,
    directory: &Path,
    state_dir: &Path,
    gateway: &str,
    problems: &mut Problems,
) -> Option<SiemSink> {
    let wrong = (
        format!("`{}` is no sink", table.to.get_ref()),
        "write udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT".to_owned(),
    );
    let endpoint = export::endpoint(table.to.get_ref(), tls_files(table, directory, problems));
    let (address, is_stream, tls) = match endpoint {
        Ok(Endpoint::Udp(address)) => (address, false, None),
        Ok(Endpoint::Tcp(address)) => (address, true, None),
        Ok(Endpoint::Tls(address, files)) => {
            if table.authority_file.is_none() {
                let remedy = "add `authority_file`, who may sign the sink's certificate, as PEM";
                problems.error(table.to.span(), "tls:// without authorities", remedy);
            }
            (address, true, Some(files))
        }
        Err(_) => {
            problems.error(table.to.span(), wrong.0, wrong.1);
            return None;
        }
    };
    let severity_max = table.severity.as_ref().map_or(u8::MAX, |it| *it.get_ref());
    if let Some(severity) = table.severity.as_ref().filter(|it| *it.get_ref() == 0) {
        problems.error(severity.span(), "severity = 0", "write 1 to 255; 1 is the most severe");
    }
    let mib = table.spool_mib.as_ref().map_or(SPOOL_MIB_DEFAULT, |it| *it.get_ref());
    if let Some(written) = &table.spool_mib {
        if !is_stream {
            problems.error(written.span(), "a spool by UDP", "write tcp://, or remove spool_mib");
        } else if !(SPOOL_MIB_MIN..=SPOOL_MIB_MAX).contains(&mib) {
            let remedy = format!("write a number from {SPOOL_MIB_MIN} to {SPOOL_MIB_MAX}");
            problems.error(written.span(), format!("spool_mib = {mib}"), remedy);
        }
    }
    let scheme = if tls.is_some() { "tls" } else { "tcp" };
    let folder = format!("{scheme}-{}", address.replace(['/', ':'], "_"));
    let format = match table.format {
        Format::Syslog => SiemFormat::Syslog,
        Format::Gelf => SiemFormat::Gelf,
        Format::Eve => SiemFormat::Eve,
    };
    Some(SiemSink {
        address,
        spool: is_stream.then(|| (state_dir.join("sink").join(folder), u64::from(mib) << 20)),
        tls,
        format,
        severity_max,
        host: gateway.to_owned(),
    })
}

/// The PEM files of a table, which start at `directory`.
fn tls_files(table: &Written, directory: &Path, problems: &mut Problems) -> TlsFiles {
    let files = [&table.authority_file, &table.certificate_file, &table.key_file];
    if let (false, Some(file)) =
        (table.to.get_ref().starts_with("tls://"), files.into_iter().flatten().next())
    {
        problems.error(file.span(), "a file for TLS without TLS", "write tls://, or remove it");
    }
    let [authorities, certificate, key] =
        files.map(|it| it.as_ref().map(|path| directory.join(path.get_ref())));
    if certificate.is_some() != key.is_some() {
        let what = "a certificate without its key, or a key without its certificate";
        problems.error(table.to.span(), what, "write both `certificate_file` and `key_file`");
    }
    TlsFiles { authorities: authorities.unwrap_or_default(), certificate: certificate.zip(key) }
}
