//! `[[export]]`: from what is written to collectors.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use weir_store::sink::encoder::MESSAGE_BYTES_MIN;
use weir_store::sink::{
    Collector, EncoderOptions, Endpoint, Format, Spooling, TemplateRefresh, TlsFiles,
};

use super::file;
use super::problem::Problems;

/// `[[export]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Export {
    pub collector: Spanned<String>,
    pub format: Spanned<ExportFormat>,
    pub biflow: Option<bool>,
    pub domain: Option<u32>,
    pub enterprise: Option<u32>,
    pub message_bytes: Option<Spanned<u16>>,
    pub template_seconds: Option<u32>,
    pub authority_file: Option<Spanned<PathBuf>>,
    pub certificate_file: Option<Spanned<PathBuf>>,
    pub key_file: Option<Spanned<PathBuf>>,
    pub spool_mib: Option<u32>,
}

/// What a collector is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    /// NetFlow version 5: IPv4 flows only.
    #[value(name = "netflow5")]
    Netflow5,
    /// NetFlow version 9: flows.
    #[value(name = "netflow9")]
    Netflow9,
    /// IPFIX: flows and queue-pair conversations.
    Ipfix,
}

/// Collectors, at most: each has a thread and a queue of a few MiB.
pub const COLLECTORS_MAX: usize = 16;

/// MiB on disk for a collector that is down: at 100,000 records a minute of 100 bytes, six minutes.
const SPOOL_MIB_DEFAULT: u32 = 64;

const NS_PER_S: u64 = 1_000_000_000;

/// The collectors of a file. PEM files start at `directory`, spools lie below `state_dir`.
pub(super) fn resolve(
    exports: &[(Range<usize>, file::Export)],
    directory: &Path,
    state_dir: &Path,
    problems: &mut Problems,
) -> Vec<Collector> {
    if let Some((span, _)) = exports.get(COLLECTORS_MAX) {
        let what = format!("{} tables [[export]]", exports.len());
        problems.error(span.clone(), what, format!("at most {COLLECTORS_MAX} are possible"));
    }
    let mut collectors: Vec<Collector> = Vec::new();
    for (span, export) in exports {
        let Some(collector) = collector(span, export, directory, state_dir, problems) else {
            continue;
        };
        if collectors.iter().any(|other| other.endpoint == collector.endpoint) {
            let what = format!("a second [[export]] to {}", collector.endpoint);
            problems.error(export.collector.span(), what, "name each collector once");
        }
        collectors.push(collector);
    }
    collectors
}

/// Reads `udp://host:port`, `tcp://...` or `tls://...`; for TLS, with these files.
///
/// # Errors
/// What is wrong, and the remedy.
pub fn endpoint(text: &str, files: TlsFiles) -> Result<Endpoint, (String, String)> {
    let remedy = "write udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT";
    let wrong = || (format!("`{text}` is no collector"), remedy.to_owned());
    let (scheme, address) = text.split_once("://").ok_or_else(wrong)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || !port.parse().is_ok_and(|port: u16| port > 0) {
        return Err(wrong());
    }
    match scheme {
        "udp" => Ok(Endpoint::Udp(address.to_owned())),
        "tcp" => Ok(Endpoint::Tcp(address.to_owned())),
        "tls" => Ok(Endpoint::Tls(address.to_owned(), files)),
        _ => Err(wrong()),
    }
}

/// The defaults for `format` by way of `endpoint`.
pub fn options(endpoint: &Endpoint, format: file::ExportFormat) -> EncoderOptions {
    let format = match format {
        file::ExportFormat::Netflow5 => Format::Netflow5,
        file::ExportFormat::Netflow9 => Format::Netflow9,
        file::ExportFormat::Ipfix => Format::Ipfix,
    };
    match endpoint {
        Endpoint::Udp(_) => EncoderOptions::datagrams(format),
        _ => EncoderOptions { format, ..EncoderOptions::stream() },
    }
}

fn collector(
    span: &Range<usize>,
    export: &file::Export,
    directory: &Path,
    state_dir: &Path,
    problems: &mut Problems,
) -> Option<Collector> {
    let in_directory = |path: &Spanned<std::path::PathBuf>| directory.join(path.get_ref());
    let certificate = match (&export.certificate_file, &export.key_file) {
        (Some(certificate), Some(key)) => Some((in_directory(certificate), in_directory(key))),
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => {
            problems.error(one.span(), "a certificate without its key", "write both, or neither");
            None
        }
    };
    let authorities = export.authority_file.as_ref().map(in_directory).unwrap_or_default();
    let place = export.collector.span();
    let endpoint = match endpoint(export.collector.get_ref(), TlsFiles { authorities, certificate })
    {
        Ok(endpoint) => endpoint,
        Err((what, remedy)) => {
            problems.error(place, what, remedy);
            return None;
        }
    };
    let is_tls = matches!(endpoint, Endpoint::Tls(..));
    if is_tls && export.authority_file.is_none() {
        let remedy = "add `authority_file`, a PEM file of who may sign the collector's certificate";
        problems.error(span.clone(), "tls:// without authorities", remedy);
    }
    let format = *export.format.get_ref();
    let is_stream = !matches!(endpoint, Endpoint::Udp(_));
    if is_stream && format != file::ExportFormat::Ipfix {
        let remedy = "write udp://, or format = \"ipfix\"";
        problems.error(export.format.span(), "NetFlow goes by UDP only", remedy);
    }
    let mut options = options(&endpoint, format);
    if let Some(bytes) = &export.message_bytes {
        if usize::from(*bytes.get_ref()) < MESSAGE_BYTES_MIN {
            let what = format!("message_bytes = {}", bytes.get_ref());
            let remedy = format!("write {MESSAGE_BYTES_MIN} to 65535: templates must fit");
            problems.error(bytes.span(), what, remedy);
        }
        options.message_bytes_max = usize::from(*bytes.get_ref());
    }
    if let (Some(seconds), Some(refresh)) = (export.template_seconds, &mut options.refresh) {
        *refresh = TemplateRefresh { interval_ns: u64::from(seconds) * NS_PER_S, ..*refresh };
    }
    options.domain = export.domain.unwrap_or(options.domain);
    options.enterprise = export.enterprise.unwrap_or(options.enterprise);
    options.biflow = export.biflow.unwrap_or(options.biflow);
    let spool = is_stream.then(|| {
        let folder = endpoint.to_string().replace("://", "-").replace(['/', ':'], "_");
        let mib = export.spool_mib.unwrap_or(SPOOL_MIB_DEFAULT);
        Spooling {
            directory: state_dir.join("export").join(folder),
            bytes_max: u64::from(mib) << 20,
        }
    });
    Some(Collector { endpoint, options, spool })
}
