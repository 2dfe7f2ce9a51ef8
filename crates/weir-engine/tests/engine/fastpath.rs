//! What the kernel counts of a flow is counted once and whole, however late the kernel is told to
//! carry it or to stop.

use weir_engine::fastpath::{Clocks, Command, FastPath};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::Policy;
use weir_engine::verdict::Side;
use weir_wire::fastpath::Slot;
use weir_wire::frame::{Frame, Meta, Time};

const NS_PER_S: u64 = 1_000_000_000;
const ROOM: usize = 128;

fn engine() -> Engine {
    let meter = Meter::new(MeterLimits::default(), 7);
    let mut engine =
        Engine::new(Policy::watch(1, 9000), Associations::default(), meter).expect("a policy");
    engine.set_fast_path(Some(FastPath::new(2, 7)));
    engine
}

/// So many packets of UDP flow `flow` by the slow path.
fn send(engine: &mut Engine, flow: u8, packets: usize) {
    for _ in 0..packets {
        let mut frame = vec![0; ROOM];
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        frame.extend([0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x10, flow, 0x20, 0, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let len = frame.len() - ROOM;
        frame.resize(frame.len() + ROOM, 0);
        let meta = Meta { original_len: len as u32, ..Meta::default() };
        engine.process(Time(1), Side::Host, &mut [Frame::new(&mut frame, ROOM, ROOM + len, meta)]);
    }
}

fn command(engine: &mut Engine) -> Option<Command> {
    engine.fast_path().unwrap().next_command()
}

fn slot(frames: u64, last_ns: u64) -> Slot {
    Slot { frames, packets: frames, bytes: 100 * frames, last_ns, ..Slot::default() }
}

fn fold(engine: &mut Engine, number: u32, slot: &Slot, at_ns: u64) {
    engine.fold(number, slot, Clocks { now: Time(at_ns), monotonic_ns: at_ns });
}

fn fast(engine: &Engine) -> u64 {
    assert!(engine.counters().host.adds_up());
    engine.counters().host.fast
}

fn slots_in_use(engine: &mut Engine) -> usize {
    engine.fast_path().unwrap().numbers().count()
}

#[test]
fn what_a_slots_last_flow_counted_is_not_the_next_ones() {
    let mut engine = engine();
    send(&mut engine, 1, 20);
    let Some(Command::Install(install)) = command(&mut engine) else { panic!("settled") };
    // Before the kernel is told, the slot is as it was left.
    fold(&mut engine, install.number, &slot(50_000, 1), 1);
    assert_eq!(fast(&engine), 0);
    engine.fast_path().unwrap().installed(install.number, 2);
    fold(&mut engine, install.number, &slot(0, 2), 3);
    fold(&mut engine, install.number, &slot(10, 4), 4);
    assert_eq!(fast(&engine), 10);
}

#[test]
fn what_is_carried_until_the_kernel_is_told_to_stop_is_counted() {
    let mut engine = engine();
    send(&mut engine, 1, 20);
    let Some(Command::Install(install)) = command(&mut engine) else { panic!("settled") };
    let number = install.number;
    engine.fast_path().unwrap().installed(number, 1);
    fold(&mut engine, number, &slot(10, 1), 1);
    // Silent for so long that it is to make room; the command waits, and the flow goes on.
    let idle = 6 * NS_PER_S;
    fold(&mut engine, number, &slot(10, 1), idle);
    assert_eq!(engine.fast_path().unwrap().len(), 0);
    for second in 1..5 {
        let now = idle + second * NS_PER_S;
        fold(&mut engine, number, &slot(10 + 1000 * second, now), now);
        assert_eq!(fast(&engine), 10 + 1000 * second, "second {second}");
    }
    assert_eq!(slots_in_use(&mut engine), 1);
    let Some(Command::Remove { key, number: removed }) = command(&mut engine) else { panic!() };
    assert_eq!((key, removed), (install.key, number));
    let told = idle + 5 * NS_PER_S;
    engine.fast_path().unwrap().removed(number, told);
    fold(&mut engine, number, &slot(5000, told), told + NS_PER_S / 100);
    assert_eq!(slots_in_use(&mut engine), 1, "a processor may be counting yet");
    fold(&mut engine, number, &slot(5001, told), told + NS_PER_S);
    assert_eq!(fast(&engine), 5001, "folded once more at the end");
    assert_eq!(slots_in_use(&mut engine), 0);
}

#[test]
fn a_flow_that_the_kernel_never_had_leaves_its_slot_at_once() {
    let mut engine = engine();
    send(&mut engine, 1, 20);
    send(&mut engine, 2, 20);
    let Some(Command::Install(install)) = command(&mut engine) else { panic!("settled") };
    engine.fast_path().unwrap().refuse(install.number);
    assert_eq!(slots_in_use(&mut engine), 1);
    // The other one is still to be told when all becomes void.
    engine.void_fast_path();
    assert_eq!(slots_in_use(&mut engine), 0);
    assert_eq!(command(&mut engine), None);
    assert!(engine.fast_path().unwrap().is_empty());
    let counters = engine.fast_path().unwrap().counters();
    assert_eq!((counters.installed, counters.removed), (2, 2));
}
