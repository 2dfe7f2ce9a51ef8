//! `make demo-rdma`, as a newcomer runs it: real RDMA between two Soft-RoCE guests through two
//! sealing gateways. Its exit code says whether the wire carried ESP only and every tool was
//! content.

use std::process::Command;

use weir_lab::vm::GuestKernel;

#[test]
fn real_rdma_passes_sealed_between_two_guests() {
    if let Err(reason) = GuestKernel::find() {
        return eprintln!("SKIPPED: real_rdma_passes_sealed_between_two_guests: {reason:#}");
    }
    let is_root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")));
    if !is_root {
        return eprintln!("SKIPPED: real_rdma_passes_sealed_between_two_guests: needs root");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir-lab"))
        .args(["lab", "demo", "--rdma"])
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("RC RDMA WRITE Middle"), "{text}");
}
