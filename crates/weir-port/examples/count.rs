//! Counts the packets and bytes of captures: `count FILE...`. Shows how fast a capture can be read.

#![expect(clippy::disallowed_methods, reason = "an example measures from outside")]

use std::time::Instant;

use weir_port::CaptureReader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in std::env::args().skip(1) {
        let begin = Instant::now();
        let mut reader = CaptureReader::open(&file)?;
        while reader.next_batch(&mut |_| ())? > 0 {}
        let stats = reader.stats();
        println!(
            "{file}: {} packets, {} bytes, {} cut short, {} skipped, {:.3} s",
            stats.packets,
            stats.bytes,
            stats.truncated_records,
            stats.skipped_packets,
            begin.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
