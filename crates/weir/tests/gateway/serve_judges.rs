//! Strangers who judge what `weir serve` says of a running gateway: Prometheus, promtool,
//! schemathesis.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weir_lab::process::{self, Running};
use weir_lab::{interrupt, topology::Lab};

use super::serve::Serve;
use super::*;

/// schemathesis makes up so many requests for each route, beside the 1,600 that it derives from the
/// document's bounds.
const EXAMPLES: &str = "6";

/// What an address is and that `from` is before `until` cannot be said in OpenAPI; who shows wrong
/// tokens is told to wait (429), which the API's own tests hold it to.
const SCHEMATHESIS: &str = "
[checks]
positive_data_acceptance.enabled = false
ignored_auth.enabled = false
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 413, 414, 415, 422, 429]
";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Prometheus with the alert rules, which scrapes `weir serve` every second.
struct Prometheus {
    _running: Running,
    address: SocketAddr,
}

impl Prometheus {
    fn start(folder: &Path, serve: &Serve) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("token"), &serve.token).unwrap();
        let rules = deploy().join("prometheus/weir.rules.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs:\n  - job_name: weir\n    \
             authorization: {{ credentials_file: token }}\n    \
             static_configs: [{{ targets: [\"{}\"] }}]\n",
            rules.display(),
            serve.address,
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        Self { _running: Running::start(&mut command).unwrap(), address }
    }

    /// What it says to `expression`; an error is one of this test.
    fn query(&self, expression: &str) -> anyhow::Result<Value> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte.into()),
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
        }
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        Ok(serde_json::from_str(body)?)
    }
}

/// Prometheus scrapes the gateway, and evaluates each expression of the Grafana dashboard.
pub(super) fn scraped_by_prometheus(lab: &Lab, serve: &Serve) {
    if !process::installed("prometheus") || !process::installed("promtool") {
        return eprintln!("SKIPPED: scraped_by_prometheus needs prometheus");
    }
    let (_, metrics) = serve.ask("/metrics", &serve.token);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    process::run_with_input(&mut promtool, &metrics, PATIENCE).unwrap();
    let rules = deploy().join("prometheus");
    for (words, file) in
        [(["check", "rules"], "weir.rules.yml"), (["test", "rules"], "weir.rules.test.yml")]
    {
        let mut promtool = Command::new("promtool");
        promtool.args(words).arg(file).current_dir(&rules);
        process::run(&mut promtool, PATIENCE).unwrap();
    }
    let prometheus = Prometheus::start(&lab.folder().join("prometheus"), serve);
    interrupt::until("a scrape of the gateway", PATIENCE, || {
        let answer = prometheus.query("weir_up").unwrap_or_default();
        Ok(answer["data"]["result"][0]["value"][1] == "1")
    })
    .unwrap();
    let text = std::fs::read_to_string(deploy().join("grafana/weir.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|it| it["targets"].as_array().unwrap());
    let (mut asked, mut with_data) = (0, 0);
    for target in targets {
        let expression = target["expr"].as_str().unwrap().replace("$gateway", ".*");
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        asked += 1;
        with_data += usize::from(!answer["data"]["result"].as_array().unwrap().is_empty());
    }
    assert!(asked >= 20 && with_data >= 5, "{with_data} of {asked} expressions found something");
}

/// Installed, or where `cargo xtask packages test` puts it.
fn schemathesis() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let own = Path::new(&home).join(".cache/weir/schemathesis/bin/schemathesis");
    let installed = || process::installed("schemathesis").then(|| "schemathesis".into());
    if own.is_file() { Some(own) } else { installed() }
}

/// A way to `to` by which each connection comes from an address of its own, as another client's:
/// what one may ask a second holds up nobody then.
fn as_many_clients(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, near) in listener.incoming().enumerate() {
            let [.., high, low] = number.to_be_bytes();
            let own = SocketAddr::from(([127, 1, high, low], 0));
            let Ok((near, far)) = near.and_then(|near| Ok((near, connect_from(own, to)?))) else {
                continue;
            };
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
            {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

fn connect_from(own: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &own)?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// schemathesis finds nothing that the OpenAPI document does not say.
pub(super) fn fuzzed_by_schemathesis(lab: &Lab, serve: &Serve) {
    let Some(schemathesis) = schemathesis() else {
        return eprintln!("SKIPPED: schemathesis is not in Debian: a judge of the API, by pip");
    };
    let config = lab.folder().join("schemathesis.toml");
    std::fs::write(&config, SCHEMATHESIS).unwrap();
    // What it remembers of a run goes where it runs.
    let mut command = Command::new(schemathesis);
    command.current_dir(lab.folder()).arg("--config-file").arg(&config);
    let address = as_many_clients(serve.address);
    command.arg("run").arg(format!("http://{address}/api/v1/openapi.json"));
    command.args(["--url", &format!("http://{address}")]);
    command.args(["--header", &format!("Authorization: Bearer {}", serve.token)]);
    // A connection a request.
    command.args(["--header", "Connection: close"]);
    command.args(["--max-examples", EXAMPLES, "--seed", "1"]);
    // The stream has no end.
    command.args(["--workers", "2", "--exclude-path", "/api/v1/live"]);
    if let Err(error) = process::run(&mut command, Duration::from_secs(300)) {
        panic!("{error:#}");
    }
}
