//! SIGHUP loses nothing.

use weir_lab::gateways::configurations;
use weir_lab::traffic::bypass::stream_while;

use super::*;

const RATE_PER_SECOND: u32 = 5000;

#[test]
fn five_reloads_of_both_gateways_lose_alter_and_reorder_nothing() {
    let Some(Stand { _turn, lab }) = stand("five_reloads_lose_nothing") else { return };
    let setup = sealed();
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, RATE_PER_SECOND, || {
        for round in 2..=6 {
            pause(500);
            let icrc = if round % 2 == 0 { "off" } else { "check" };
            let lines = format!("icrc = \"{icrc}\"\nroce_mtu = {}", 1024 << (round % 3));
            reload(&lab, &mut gateways, &texts, &lines, round);
        }
    })
    .unwrap();
    assert!(streamed.sent > 10_000, "{streamed:?}");
    assert!(streamed.is_exact(), "{streamed:?}");
}
