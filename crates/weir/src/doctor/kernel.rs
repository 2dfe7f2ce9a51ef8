//! What the kernel offers, and what this process may use of it.

use std::fs;
use std::path::Path;

use weir_engine::fastpath::opcode_words;
use weir_port::{FastPath, FastPathOptions};

use super::{Finding, Grade};

const AREA: &str = "kernel";

/// Capabilities that `weir up` needs, by their number in `linux/capability.h`.
const CAPABILITIES: &[(&str, u32)] =
    &[("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_IPC_LOCK", 14), ("CAP_BPF", 39)];

/// Looks at the kernel.
pub fn examine() -> Vec<Finding> {
    let protocols = text("/proc/net/protocols");
    let symbols = text("/proc/kallsyms");
    let has_protocol = |name: &str| protocols.lines().any(|it| it.starts_with(name));
    let has_symbol = |name: &str| symbols.split_whitespace().any(|it| it == name);
    let mut findings =
        vec![Finding::good(AREA, "version", text("/proc/sys/kernel/osrelease").trim())];
    let mut offer = |name: &str, present: bool, grade: Grade, change: &str| {
        findings.push(if present {
            Finding::good(AREA, name, "yes")
        } else {
            Finding::change(AREA, name, "no", grade, change)
        });
    };
    offer(
        "AF_PACKET (driver = \"packet\")",
        has_protocol("PACKET"),
        Grade::Problem,
        "a kernel with CONFIG_PACKET, or `modprobe af_packet`",
    );
    offer(
        "clsact (the guard that closes the ports)",
        has_symbol("clsact_init") || module_exists("sch_ingress"),
        Grade::Problem,
        "a kernel with CONFIG_NET_SCH_INGRESS, or `modprobe sch_ingress`",
    );
    offer(
        "TAP with vnet_hdr (what is the gateway's own)",
        Path::new("/dev/net/tun").exists(),
        Grade::Problem,
        "`modprobe tun`",
    );
    offer(
        "AF_XDP (driver = \"xdp\")",
        has_protocol("XDP"),
        Grade::Advice,
        "a kernel with CONFIG_XDP_SOCKETS; driver = \"packet\" works without",
    );
    offer(
        "BPF with type information (BTF)",
        Path::new("/sys/kernel/btf/vmlinux").exists(),
        Grade::Advice,
        "a kernel with CONFIG_DEBUG_INFO_BTF",
    );
    offer(
        "BPF compiled to machine code (JIT)",
        text("/proc/sys/net/core/bpf_jit_enable").trim() != "0",
        Grade::Advice,
        "`sysctl -w net.core.bpf_jit_enable=1`",
    );
    findings.push(fast_path());
    findings.push(privileges());
    findings.push(locked_memory());
    findings.push(Finding::good(
        AREA,
        "socket buffers",
        format!(
            "rmem_max {}, wmem_max {} bytes (a gateway with CAP_NET_ADMIN is not held to them)",
            text("/proc/sys/net/core/rmem_max").trim(),
            text("/proc/sys/net/core/wmem_max").trim()
        ),
    ));
    findings
}

/// Loads the fast path's programs, attached to nothing.
fn fast_path() -> Finding {
    let name = "fast path (fastpath = \"auto\")";
    let options = FastPathOptions { flows_max: 1, workers: 1, opcode_words: opcode_words() };
    match FastPath::detached(&options) {
        Ok(_) => Finding::good(AREA, name, "its programs load"),
        Err(error) => Finding::change(
            AREA,
            name,
            format!("no: {error}"),
            Grade::Advice,
            "a kernel from 5.12 on, as root; fastpath = \"off\" works without",
        ),
    }
}

fn privileges() -> Finding {
    let status = text("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(_, number)| effective >> number & 1 == 0)
        .map(|(name, _)| *name)
        .collect();
    if lacking.is_empty() {
        return Finding::good(AREA, "privileges", "all that `weir up` needs");
    }
    let found = format!("lacking: {}", lacking.join(" "));
    Finding::change(AREA, "privileges", found, Grade::Advice, "run `weir up` as root")
}

fn locked_memory() -> Finding {
    let limits = text("/proc/self/limits");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let limit = limit.and_then(|it| it.split_whitespace().next()).unwrap_or("unknown");
    match limit.parse::<u64>() {
        Ok(bytes) if bytes < 64 << 20 => Finding::change(
            AREA,
            "locked memory",
            format!("{bytes} bytes"),
            Grade::Advice,
            "LimitMEMLOCK=infinity (the systemd unit has it) for driver = \"xdp\"",
        ),
        _ => Finding::good(AREA, "locked memory", limit),
    }
}

/// Whether a module of this kernel could be loaded, or is built in.
fn module_exists(name: &str) -> bool {
    let release = text("/proc/sys/kernel/osrelease");
    ["modules.dep", "modules.builtin"].iter().any(|list| {
        let path = format!("/lib/modules/{}/{list}", release.trim());
        text(&path).contains(&format!("/{name}.ko"))
    })
}

fn text(path: &str) -> String {
    fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
}
