//! Real RDMA between two guests over bridged gateways: judged by rdma-core's rping and perftest.

use std::time::Duration;

use weir_lab::topology::{Gateways, HOST_V4, HOST_V6, Hosts, Lab, Plan, Side};
use weir_lab::vm::{Guest, GuestKernel};

#[test]
fn guests_speak_rdma_through_the_lab() {
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: guests_speak_rdma_through_the_lab: {reason:#}"),
    };
    let plan = Plan { gateways: Gateways::Bridge, hosts: Hosts::Guests, ..Plan::default() };
    let lab = match Lab::build(plan) {
        Ok(lab) => lab,
        Err(reason) => return eprintln!("SKIPPED: guests_speak_rdma_through_the_lab: {reason:#}"),
    };
    let mut a = Guest::boot(&lab, Side::A, &kernel).expect("guest A starts");
    let mut b = Guest::boot(&lab, Side::B, &kernel).expect("guest B starts");
    a.wait_ready().expect("guest A is up");
    b.wait_ready().expect("guest B is up");
    let limit = Duration::from_secs(60);

    for address in [HOST_V4[1].to_string(), HOST_V6[1].to_string()] {
        let server = b.start(&format!("rping -s -v -C 5 -a {address}")).expect("a server");
        b.wait_for_rdma_server().expect("it listens");
        let line = format!("rping -c -v -C 5 -a {address}");
        let client = a.run(&line, limit).expect("the client ends");
        let said = client.success().expect("rping's own verdict");
        assert_eq!(said.matches("ping data: rdma-ping-").count(), 5, "{said}");
        server.finish(limit).expect("the server ends").success().expect("its own verdict");
    }

    // -F: an emulated CPU's clock says nothing of the transfer.
    let tool = "ib_write_bw -F -d rxe0 -x 1 -m 1024 -n 200";
    let server = b.start(tool).expect("a server");
    b.wait_for_rdma_server().expect("it listens");
    let line = format!("{tool} {}", HOST_V4[1]);
    let said = a.run(&line, limit).expect("the client ends").success().expect("its own verdict");
    assert!(said.contains("BW average"), "{said}");
    server.finish(limit).expect("the server ends").success().expect("its own verdict");
}
