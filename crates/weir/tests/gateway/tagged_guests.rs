//! Real RDMA over gateways that tag: Soft-RoCE guests run perftest; their kernel checks each ICRC.

use weir_lab::topology::{HOST_V4, Hosts};
use weir_lab::vm::{Guest, GuestKernel};

use super::*;

/// A run of a tool; emulated machines are slow when the host is busy.
const RUN: Duration = Duration::from_secs(90);

#[test]
fn perftest_between_guests_is_tagged_and_no_packet_is_lost_in_a_gateway() {
    const TEST: &str = "perftest_between_guests_is_tagged";
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: {TEST}: {reason:#}"),
    };
    let plan = Plan { hosts: Hosts::Guests, ..Plan::default() };
    let Some(Stand { _turn, lab }) = stand_with(TEST, plan) else { return };
    let mut a = Guest::boot(&lab, Side::A, &kernel).unwrap();
    let mut b = Guest::boot(&lab, Side::B, &kernel).unwrap();
    let gateways = Gateways::start(&lab, &Setup::new(WEIR, Protection::Tagged)).unwrap();
    a.wait_ready().unwrap();
    b.wait_ready().unwrap();
    let wire = listen(&lab, 65_535);
    for tool in ["ib_write_bw", "ib_send_bw", "ib_read_bw"] {
        // -F: an emulated CPU's clock says nothing of the transfer.
        let server = format!("{tool} -F -d rxe0 -x 1 -m 1024 -n 300");
        let serving = b.start(&server).unwrap();
        b.wait_for_rdma_server().unwrap();
        let client = format!("{server} {}", HOST_V4[1]);
        a.run(&client, RUN).unwrap().success().unwrap();
        serving.finish(RUN).unwrap().success().unwrap();
    }
    let wire = wire.stop().unwrap();
    let statuses = Side::BOTH.map(|side| gateways.status(side).unwrap());
    let count = |side: Side, name: &str| {
        number(&statuses[side.index()], &format!("/pairs/0/peers/0/tag/{name}"))
    };
    for side in Side::BOTH {
        assert!(count(side, "tagged_packets") > 100, "{statuses:#?}");
        assert_eq!(count(side, "tagged_packets"), count(side.other(), "restored_packets"));
        let status = &statuses[side.index()];
        let rdma = &status["pairs"][0]["rdma"];
        assert_eq!(rdma["icrc_bad"], 0, "{rdma:#}");
        assert_eq!(rdma["losses"]["gateway"], 0, "{rdma:#}");
        for port in ["host", "wire"] {
            let reasons = &status["pairs"][0][port]["dropped_by_reason"];
            let tags = ["tag_foreign", "tag_forged", "tag_old_epoch", "tag_failure_limit"];
            assert!(tags.iter().all(|name| reasons[name].as_u64().unwrap_or(0) == 0), "{reasons}");
        }
        eprintln!("{side:?}: {} retransmissions seen, {}", rdma["retransmissions"], rdma["losses"]);
    }
    let mut read = Command::new(WEIR);
    read.args(["read", "--json"]).arg(wire.file());
    let report: Value =
        serde_json::from_str(&process::run(&mut read, PATIENCE).unwrap().stdout).unwrap();
    assert_eq!(number(&report, "/rdma/icrc_ok"), 0, "no ordinary ICRC on the wire");
    assert!(number(&report, "/rdma/icrc_bad") > 1000);
}
