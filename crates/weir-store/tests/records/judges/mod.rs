//! Strangers that take events: syslog-ng, unpacked beside rsyslog, which excludes it, graygelf, a
//! decoder of GELF of npm's registry, and Graylog's own behind Go's TLS. `cargo xtask packages
//! test` brings all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn cache(name: &str) -> PathBuf {
    Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/weir").join(name)
}

/// How events come.
#[derive(Clone, Copy)]
pub(crate) enum Transport {
    Udp,
    Tcp,
    Tls,
}

/// syslog-ng of its own configuration, on loopback. It writes what it takes as the tests' rsyslog
/// does, but for its own way to write UTC.
pub(crate) struct SyslogNg(Child);

impl SyslogNg {
    /// Where it is unpacked, or a word why its test is skipped.
    pub(crate) fn root() -> Option<PathBuf> {
        let roots = [PathBuf::from("/"), cache("syslog-ng-core")];
        let found = roots.into_iter().find(|it| it.join("usr/sbin/syslog-ng").is_file());
        if found.is_none() {
            eprintln!("SKIPPED: syslog-ng is not unpacked: `cargo xtask packages test`");
        }
        found
    }

    /// At `port`; with TLS by certificate.pem and key.pem of `folder`.
    pub(crate) fn start(root: &Path, folder: &Path, transport: Transport, port: u16) -> Self {
        let place = folder.display();
        let transport = match transport {
            Transport::Udp => "transport(\"udp\")".to_owned(),
            Transport::Tcp => "transport(\"tcp\")".to_owned(),
            Transport::Tls => format!(
                "transport(\"tls\") tls(key-file(\"{place}/key.pem\") \
                 cert-file(\"{place}/certificate.pem\") peer-verify(optional-untrusted))"
            ),
        };
        let text = format!(
            "@version: 3.38\n\
             options {{ keep-hostname(yes); use-dns(no); dns-cache(no); flush-lines(1); \
             log-msg-size(32768); frac-digits(6); stats-freq(0); }};\n\
             source s {{ syslog(ip(\"127.0.0.1\") port({port}) {transport}); }};\n\
             destination d {{ file(\"{place}/received\" time-zone(\"UTC\") \
             template(\"$PRI|$S_ISODATE|$HOST|$PROGRAM|$MSGID|$SDATA|$MSG\\n\")); }};\n\
             log {{ source(s); destination(d); }};\n"
        );
        let configuration = folder.join("syslog-ng.conf");
        fs::write(&configuration, text).unwrap();
        let libraries = root.join("usr/lib/syslog-ng");
        let mut command = Command::new(root.join("usr/sbin/syslog-ng"));
        command.env("LD_LIBRARY_PATH", &libraries).args(["--foreground", "--no-caps"]);
        command.arg(format!("--module-path={}", libraries.join("3.38").display()));
        command.arg("--cfgfile").arg(&configuration);
        for (option, file) in
            [("--persist-file", "persist"), ("--control", "control"), ("--pidfile", "pid")]
        {
            command.arg(option).arg(folder.join(file));
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self(child)
    }
}

impl Drop for SyslogNg {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints its port, then each message, a line each.
const GRAYGELF: &str = r#"
const [path, port] = process.argv.slice(1);
const server = require(path)();
server.on("message", (message) => console.log(JSON.stringify(message)));
server.listen(Number(port), "127.0.0.1");
server._udp.on("listening", () => console.log(port));
"#;

/// graygelf's server at UDP `port`; `None`, said, where it is not installed.
pub(crate) fn graygelf(port: u16) -> Option<Command> {
    let server = cache("graygelf").join("node_modules/graygelf/server.js");
    let mut command = Command::new("node");
    let asked = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if !server.is_file() || asked.is_err() {
        eprintln!("SKIPPED: graygelf is not in Debian: a decoder of GELF, by npm");
        return None;
    }
    command.args(["-e", GRAYGELF]).arg(server).arg(port.to_string());
    Some(command)
}

/// A server of GELF by TLS with certificate.pem and key.pem of `folder`, which decodes with
/// Graylog's own library; `None`, said, where it is not built.
pub(crate) fn gelf_by_tls(folder: &Path) -> Option<Command> {
    let server = cache("gelf-tls").join("gelf-tls");
    if !server.is_file() {
        eprintln!("SKIPPED: gelf-tls is not in Debian: Graylog's decoder of GELF, by go");
        return None;
    }
    let mut command = Command::new(server);
    command.arg(folder.join("certificate.pem")).arg(folder.join("key.pem"));
    Some(command)
}
