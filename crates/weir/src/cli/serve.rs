//! `weir serve`: the API and the dashboard of this machine's gateways.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use weir_serve::account;
use weir_serve::gateways::Places;
use weir_serve::server::{self, Options};

use super::records::STORES_DEFAULT;

/// Loopback: the token goes in clear.
const ADDRESS_DEFAULT: &str = "127.0.0.1:8470";

/// Below the state directory, in a folder of its own: it is this process's secret.
const TOKEN_DEFAULT: &str = "/var/lib/weir-serve/token";

const HELP: &str = "\
Shows in a browser what the gateways of this machine do and did, and answers the same questions
by an API (/api/v1/openapi.json) and to Prometheus (/metrics). It holds no keys: it reads the store
and the last status of each gateway that has a table [store]. It can change what a gateway lets it:
with `[store] operate = true` blocks and what is said of alerts, for operators; with `administer =
true` the configuration, for admins.

Started as root it becomes --user before it takes a connection. GROUP is that of `[store] group`.
Who opens the link that it prints is let in; scripts send `Authorization: Bearer TOKEN`.

Examples:
  weir serve --user weir-serve:weir
  curl -H \"Authorization: Bearer $(cat /var/lib/weir-serve/token)\" \\
      http://127.0.0.1:8470/api/v1/conversations?last=600

Exit codes:
  0  ended by a signal
  1  the address is taken, the token cannot be had, or it would have run as root
  2  the command line is wrong";

/// Arguments of `weir serve`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ServeArgs {
    /// Where to listen
    #[arg(long, default_value = ADDRESS_DEFAULT, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Listen beyond loopback: the token and all answers cross the network in clear
    #[arg(long)]
    pub danger_beyond_loopback: bool,
    /// Who to be, when started as root: names or numbers
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Holds the token; made where there is none
    #[arg(long, default_value = TOKEN_DEFAULT, value_name = "FILE")]
    pub token_file: PathBuf,
    /// Who else may look (viewer), block (operator) or change all (admin): `ROLE NAME TOKEN` a line
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Where gateways, and `weir collect`, keep their sockets; several allowed
    #[arg(long, default_values = ["/run/weir", "/var/lib/weir-collect"], value_name = "DIRECTORY")]
    pub run_dir: Vec<PathBuf>,
    /// Where gateways keep their stores, or a store; several allowed
    #[arg(long, default_values = STORES_DEFAULT, value_name = "PATH")]
    pub store: Vec<PathBuf>,
}

/// Runs `weir serve`.
///
/// # Errors
/// See [`server::run`].
pub fn run(args: &ServeArgs) -> Result<ExitCode> {
    let with_colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(with_colours)
        .init();
    let account = args.user.as_deref().map(account::account).transpose()?;
    let options = Options {
        address: args.listen,
        beyond_loopback: args.danger_beyond_loopback,
        places: Places { run_folders: args.run_dir.clone(), stores: args.store.clone() },
        token_file: args.token_file.clone(),
        tokens: args.tokens.clone(),
        account,
    };
    server::run(options, |link| {
        // Whoever reads the link may have left.
        let _ = writeln!(std::io::stdout(), "{link}");
    })?;
    Ok(ExitCode::SUCCESS)
}
