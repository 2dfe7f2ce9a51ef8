//! Classes of traffic outside, as tshark reads them on the wire.

use std::collections::BTreeMap;

use weir_lab::topology::{HOST_DEVICE, HOST_MAC, Side};
use weir_lab::traffic::bypass::send_frames;

use super::*;

const LINES: &str = "vlan = 100\ndscp_map = { \"26\" = 34 }\npcp_map = { \"3\" = 5 }\n";

/// A frame of an experiment of host A's, in its VLAN 7 with priority `pcp`.
fn tagged(pcp: u8) -> Vec<u8> {
    let [from, to] = [HOST_MAC[0], HOST_MAC[1]];
    let mut frame = [&to[..], &from, &[0x81, 0, pcp << 5, 7, 0x88, 0xb5]].concat();
    frame.resize(100, 0x5a);
    frame
}

/// Three pings with DSCP `dscp`.
fn ping_with(lab: &Lab, dscp: u8) {
    let mut command = lab.host(Side::A).command("ping");
    command.args(["-n", "-c", "3", "-i", "0.1", "-Q", &(dscp << 2).to_string()]);
    process::run(command.arg(lab.host_v4(Side::B).to_string()), PATIENCE).unwrap();
}

/// ESP packets by (VLAN, priority, DSCP).
fn classes(wire: &Captured) -> BTreeMap<(u16, u8, u8), usize> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(wire.file()).args(["-Y", "esp", "-T", "fields"]);
    command.args(["-e", "vlan.id", "-e", "vlan.priority", "-e", "ip.dsfield.dscp"]);
    let said = process::run(&mut command, PATIENCE).unwrap().stdout;
    let mut classes = BTreeMap::new();
    for line in said.lines() {
        let fields: Vec<u16> = line.split('\t').map(|it| it.parse().unwrap()).collect();
        *classes.entry((fields[0], fields[1] as u8, fields[2] as u8)).or_default() += 1;
    }
    classes
}

#[test]
fn outside_stand_the_classes_of_inside_or_what_the_map_makes_of_them() {
    let Some(Stand { _turn, lab }) = stand("outside_stand_the_classes_of_inside") else { return };
    let wire = listen(&lab, 128);
    let setup = Setup { pair_lines: LINES.to_owned(), ..sealed() };
    let gateways = sealing_gateways(&lab, &setup);
    for dscp in [26, 46] {
        ping_with(&lab, dscp);
    }
    let frames = [vec![tagged(3); 7], vec![tagged(6); 5]].concat();
    send_frames(lab.host(Side::A), HOST_DEVICE, &frames, 1000).unwrap();
    let opened = |it: &Value| number(it, "/pairs/0/wire/opened") >= 6 + 12;
    wait_status(&gateways, Side::B, opened);

    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["pairs"][0]["dscp_map"], serde_json::json!({ "26": 34 }));
    assert_eq!(status["pairs"][0]["pcp_map"], serde_json::json!({ "3": 5 }));
    let text = gateways.status_text(Side::A).unwrap();
    assert!(text.contains("DSCP outside: 26 as 34; the rest as inside"), "{text}");

    let classes = classes(&wire.stop().unwrap());
    let count = |class: (u16, u8, u8)| classes.get(&class).copied().unwrap_or(0);
    assert_eq!((count((100, 5, 0)), count((100, 6, 0))), (7, 5), "{classes:?}");
    // Each echo has an answer of the same class.
    assert_eq!((count((100, 0, 34)), count((100, 0, 46))), (6, 6), "{classes:?}");
    assert!(
        classes
            .keys()
            .all(|(vlan, pcp, dscp)| (*vlan, *pcp == 3, *dscp == 26) == (100, false, false)),
        "{classes:?}"
    );
}
