//! Debian packages that a task needs: installs what is missing, says what cannot be had, goes on.
//! What then cannot be run says so itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// To compile: the C compiler that links, clang with the headers of the kernel programs, and the
/// pattern matcher (docs/adr/0258) with the C++ library that it needs.
const BUILD: &[&str] = &[
    "gcc",
    "libc6-dev",
    "clang",
    "libbpf-dev",
    "linux-libc-dev",
    if cfg!(target_arch = "x86_64") { "libhyperscan-dev" } else { "libvectorscan-dev" },
    "libstdc++-12-dev",
];

/// What cannot be installed beside a package that is needed, and makes way for it.
const RIVALS: &[(&str, &[&str])] =
    &[("libhyperscan-dev", &["libvectorscan-dev", "libvectorscan5"])];

/// What the lab and its observers call.
const DEMO: &[&str] = &[
    "iproute2",
    "ethtool",
    "nftables",
    "iputils-ping",
    "iperf3",
    "tcpdump",
    "tshark",
    "procps",
    "util-linux",
    "kmod",
    "wireguard-go",
    "wireguard-tools",
];

/// Two guests with Soft-RoCE. The kernel is only read, never booted by this machine's loader.
const DEMO_RDMA: &[&str] = &[
    "qemu-system-x86",
    "linux-image-amd64",
    "busybox-static",
    "cpio",
    // Unpacks the guests' kernel.
    "xz-utils",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
    "ibverbs-utils",
    "ibverbs-providers",
    "python3-pyverbs",
];

/// The strangers that judge.
const TEST: &[&str] = &[
    "wireshark-common",
    "python3",
    "python3-scapy",
    "python3-cryptography",
    "python3-scipy",
    "python3-statsmodels",
    "hping3",
    "rsyslog",
    "rsyslog-gnutls",
    "tmux",
    "prometheus",
    "softflowd",
    "openvswitch-switch",
    "nfdump",
    "pmacct",
    "openssl",
    "bpftool",
    "openvpn",
    "wireguard-go",
    "wireguard-tools",
    "tcpreplay",
    "zstd",
    "libpcap0.8",
    "strongswan-charon",
    "strongswan-swanctl",
    "strongswan-pki",
    "libcharon-extra-plugins",
    "libstrongswan-standard-plugins",
    "strace",
    "libfaketime",
    // What libreswan's programs are linked with, and certutil.
    "libcurl3-nss",
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
    "libldap-2.5-0",
    "libldns3",
    "libnss3",
    "libnss3-tools",
    "libunbound8",
    "libcap-ng0",
    "libaudit1",
    "libpam0g",
    "libselinux1",
    "libsystemd0",
    // What syslog-ng is linked with.
    "libivykis0",
    "libnet1",
    "libwrap0",
    "libpcre3",
    "libjson-c5",
    // Where Python's registry is installed from.
    "python3-venv",
    // The kernel's own build, for a module.
    "make",
    "libelf1",
];

/// Packages that cannot be installed beside others that are needed, unpacked into
/// `~/.cache/weir/NAME`, where the tests look: name, and a file of it.
const UNPACKED: &[(&str, &str)] =
    &[("libreswan", "usr/libexec/ipsec/pluto"), ("syslog-ng-core", "usr/sbin/syslog-ng")];

/// The peers that are measured beside us.
const BENCH: &[&str] = &[
    "softflowd",
    "nfdump",
    "tcpdump",
    "wireguard-go",
    "wireguard-tools",
    "tcpreplay",
    "wireshark-common",
    "netsniff-ng",
    "openvpn",
    "openssl",
    "strongswan-charon",
    "strongswan-swanctl",
    "libcharon-extra-plugins",
    "libstrongswan-standard-plugins",
    "iperf3",
    // Short HTTP flows; a server and a client that cost little themselves.
    "nginx-light",
    "apache2-utils",
    "python3",
    "time",
    "debootstrap",
];

/// Strangers that Debian does not have, built by Go's own installer into `~/go/bin`, where the
/// tests look: name and module.
const GO: &[(&str, &str)] = &[
    ("goflow2", "github.com/netsampler/goflow2/v2/cmd/goflow2@v2.2.6"),
    // Debian's wireguard-go is of 2022 and knows no segmentation offload: it stands in where this
    // cannot be built.
    ("wireguard", "golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446"),
];

/// Strangers of other languages' registries, in `~/.cache/weir/NAME`: name, a file of it, and how
/// it comes there. Tests go without them.
const REGISTRIES: &[(&str, &str, &str)] = &[
    (
        "graygelf",
        "node_modules/graygelf/server.js",
        "npm install --silent --ignore-scripts --prefix \"$1\" graygelf@2.0.0",
    ),
    (
        "gelf-tls",
        "gelf-tls",
        "cp crates/weir-store/tests/records/judges/gelf_tls.go \"$1/main.go\" && cd \"$1\" && \
         { [ -f go.mod ] || go mod init gelf-tls; } && \
         go get github.com/Graylog2/go-gelf@v0.0.0-20191017102106-1550ee647df0 && \
         CGO_ENABLED=0 go build -o gelf-tls .",
    ),
    (
        "schemathesis",
        "bin/schemathesis",
        "python3 -m venv \"$1\" && \"$1/bin/pip\" install -q --retries 1 schemathesis==4.32.5",
    ),
];

/// Whether this machine has everything that tests need: all packages, the strangers beside them,
/// and root. Then no test has a reason to be skipped.
pub(crate) fn are_complete() -> bool {
    let debian = [BUILD, DEMO, DEMO_RDMA, TEST].concat();
    is_root()
        && debian.into_iter().all(installed)
        && UNPACKED.iter().all(|(name, file)| is_unpacked(name, file))
        && linux_folder().join("complete").is_file()
        && GO.iter().all(|(name, _)| go_folder().is_some_and(|it| is_built(name, &it)))
}

/// Installs what is missing for `purpose`. True unless there is no such purpose: a package that
/// cannot be had is named, and the task goes on without it.
pub(crate) fn install(purpose: &str) -> Result<bool> {
    let groups: &[&[&str]] = match purpose {
        "build" => &[BUILD],
        "demo" => &[BUILD, DEMO],
        "demo-rdma" => &[BUILD, DEMO, DEMO_RDMA],
        "test" => &[BUILD, DEMO, DEMO_RDMA, TEST],
        "bench" => &[BUILD, DEMO, BENCH],
        _ => bail!("no purpose `{purpose}`; build, demo, demo-rdma, test or bench"),
    };
    install_debian(purpose, groups);
    if purpose == "test" {
        UNPACKED.iter().for_each(|(name, file)| unpack(name, file));
        unpack_linux();
        REGISTRIES.iter().for_each(|(name, file, script)| fetch(name, file, script));
    }
    if matches!(purpose, "test" | "bench") {
        install_go();
    }
    if purpose == "bench" {
        install_suricata();
    }
    Ok(true)
}

fn install_debian(purpose: &str, groups: &[&[&str]]) {
    let missing: Vec<&str> = groups.concat().into_iter().filter(|it| !installed(it)).collect();
    if missing.is_empty() {
        return;
    }
    println!("packages missing for `{purpose}`: {}", missing.join(" "));
    if !is_root() {
        println!("not root: install them yourself (`apt-get install {}`)", missing.join(" "));
        return;
    }
    if !program_exists("apt-get") {
        println!("no apt-get here: install what your system calls them");
        return;
    }
    // The lists may be missing altogether, or older than what the mirror holds.
    if !apt_install(&missing) {
        apt(&["update"], &[]);
        if !apt_install(&missing) {
            missing.iter().for_each(|it| _ = apt_install(&[it]));
        }
    }
    let lacking: Vec<&str> = missing.into_iter().filter(|it| !installed(it)).collect();
    if !lacking.is_empty() {
        println!("could not be had, and what needs it will be skipped: {}", lacking.join(" "));
    }
}

/// Installs packages, in the place of what they cannot stand beside.
fn apt_install(packages: &[&str]) -> bool {
    let rivals = RIVALS.iter().filter(|it| packages.contains(&it.0)).flat_map(|it| it.1);
    let removed: Vec<String> =
        rivals.filter(|it| installed(it)).map(|it| format!("{it}-")).collect();
    let removed = removed.iter().map(String::as_str);
    let all: Vec<&str> = packages.iter().copied().chain(removed).collect();
    apt(&["install", "-y", "--no-install-recommends"], &all)
}

/// Unpacks a package without installing it.
fn unpack(name: &str, file: &str) {
    if is_unpacked(name, file) {
        return;
    }
    let folder = cache(name);
    println!("unpacking {name}");
    let script = "mkdir -p \"$1\" && cd \"$1\" && rm -f ./*.deb && \
                  { apt-get download -q \"$2\" || \
                    { apt-get update -q && apt-get download -q \"$2\"; }; } && \
                  dpkg -x ./*.deb . && rm -f ./*.deb";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&folder).arg(name).stdout(Stdio::null());
    if !shell.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("could not be had, and its test will be skipped: {name}");
    }
}

/// Fetches what another registry has.
fn fetch(name: &str, file: &str, script: &str) {
    let folder = cache(name);
    if folder.join(file).is_file() {
        return;
    }
    println!("fetching {name}");
    // A registry that is not there is asked again and again.
    let mut shell = Command::new("timeout");
    let script = format!("mkdir -p \"$1\" && {script}");
    shell.args(["300", "sh", "-c", &script, "sh"]).arg(&folder);
    shell.stdout(Stdio::null()).stderr(Stdio::null());
    if !shell.status().is_ok_and(|status| status.success()) {
        println!("could not be had, and its test will be skipped: {name}");
    }
}

/// Installs Debian unstable's Suricata into a root of its own: it needs newer libraries than this
/// system has.
fn install_suricata() {
    let folder = cache("suricata");
    if !is_root() {
        return;
    }
    if folder.join("usr/bin/suricata").is_file() {
        write_starter(&folder);
        return;
    }
    println!("installing Suricata of Debian's unstable suite into {}", folder.display());
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=suricata", "sid"]).arg(&folder);
    if !debootstrap.stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("could not be had, and what is measured beside it will be left out: Suricata");
        return;
    }
    write_starter(&folder);
}

/// Writes a script beside that Suricata which starts it outside of its root, with its own loader,
/// libraries and settings: so it reads any file, as `weir verify --beside` wants it.
fn write_starter(root: &Path) {
    let script = r#"#!/bin/sh
root=$(dirname "$(readlink -f "$0")")
libraries=$root/usr/lib/$(uname -m)-linux-gnu
export MAGIC="$root/usr/lib/file/magic.mgc"
case " $* " in *" -c "*) ;; *) set -- -c "$root/etc/suricata/suricata.yaml" "$@" ;; esac
exec "$libraries"/ld-linux*.so.* --library-path "$libraries:$libraries/blas" \
    "$root/usr/bin/suricata" "$@" \
    --set classification-file="$root/etc/suricata/classification.config" \
    --set reference-config-file="$root/etc/suricata/reference.config"
"#;
    let place = root.join("suricata");
    let written = fs::write(&place, script);
    let allowed = fs::Permissions::from_mode(0o755);
    let written = written.and_then(|()| fs::set_permissions(&place, allowed));
    if let Err(error) = written {
        println!("cannot write {}: {error}", place.display());
    }
}

/// Unpacks the newest Linux 6.12 of this Debian, with what its modules are built with: a guest's
/// kernel, which must not become the newest that is installed. Its headers name their own place.
fn unpack_linux() {
    let folder = linux_folder();
    if folder.join("complete").is_file() {
        return;
    }
    println!("unpacking linux 6.12");
    let script = r#"set -e
        rm -rf "$1"; mkdir -p "$1"; cd "$1"
        fetch() {
            version=$(apt-cache depends linux-headers-6.12-amd64 |
                sed -n 's/.*Depends: linux-headers-\(6\.12\..*\)-amd64$/\1/p')
            [ "$version" ] && apt-get download -q linux-image-$version-amd64-unsigned \
                linux-headers-$version-amd64 linux-headers-$version-common \
                linux-kbuild-$version
        }
        fetch || { rm -f ./*.deb; apt-get update -q; fetch; }
        for package in ./*.deb; do dpkg -x "$package" .; rm "$package"; done
        sed -i "s,/usr/src,$PWD/usr/src," usr/src/linux-headers-$version-amd64/Makefile
        depmod -b . $version-amd64
        touch complete"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&folder).stdout(Stdio::null());
    // Else `depmod` may be out of reach.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    shell.env("PATH", path).stderr(Stdio::null());
    if !shell.status().is_ok_and(|status| status.success()) {
        println!("could not be had, and its tests will be skipped: linux 6.12");
    }
}

fn install_go() {
    let Some(folder) = go_folder() else { return };
    for (name, module) in GO {
        if is_built(name, &folder) {
            continue;
        }
        println!("go install {module}");
        let mut go = Command::new("go");
        go.args(["install", module]).env("GOBIN", &folder).env("CGO_ENABLED", "0");
        if !go.stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            println!("could not be had (is Go there?), and its test will be skipped: {name}");
        }
    }
}

/// Where tests look for what is unpacked under `name`.
fn cache(name: &str) -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    Path::new(&home).join(".cache/weir").join(name)
}

fn linux_folder() -> PathBuf {
    cache("linux-6.12")
}

fn is_unpacked(name: &str, file: &str) -> bool {
    Path::new("/").join(file).is_file() || cache(name).join(file).is_file()
}

fn go_folder() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"))
}

fn is_built(name: &str, folder: &Path) -> bool {
    program_exists(name) || folder.join(name).is_file()
}

fn apt(arguments: &[&str], packages: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-o", "Dpkg::Use-Pty=0", "-o", "Acquire::Retries=3"])
        // Another installation may be under way, on a machine that just started.
        .args(["-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .args(packages)
        .stdout(Stdio::null());
    println!("apt-get {} {}", arguments.join(" "), packages.join(" "));
    command.status().is_ok_and(|status| status.success())
}

fn installed(package: &str) -> bool {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

fn program_exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_of_the_makefile_is_known_and_others_are_refused() {
        let makefile = include_str!("../../Makefile");
        let purposes: Vec<&str> = makefile
            .lines()
            .filter_map(|line| line.split_once("xtask packages ").map(|(_, purpose)| purpose))
            .collect();
        assert!(purposes.len() >= 4, "{purposes:?}");
        for purpose in purposes {
            assert!(["build", "demo", "demo-rdma", "test", "bench"].contains(&purpose.trim()));
        }
        assert!(install("lunch").is_err());
    }
}
