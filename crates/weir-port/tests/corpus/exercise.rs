//! What a capture reader must hold for any file. Shared with the fuzz target `capture`.

use std::io::Read;

use weir_port::CaptureReader;
use weir_port::capture::PACKET_LEN_MAX;

/// A source that gives `step` bytes at a time, so that blocks end anywhere.
struct Trickle {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.step.min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// What a reader made of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    packets: Vec<(u64, Vec<u8>)>,
    error: Option<String>,
    truncated: u64,
}

/// Reads the file in one piece and in small ones; both must see the same.
pub(crate) fn exercise_input(file: &[u8]) {
    let whole = outcome(file, usize::MAX);
    assert_eq!(whole, outcome(file, 61), "block borders must not matter");
    let bytes: usize = whole.packets.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes <= file.len(), "no byte comes from nowhere");
}

fn outcome(file: &[u8], step: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let source = Trickle { bytes: file.to_vec(), at: 0, step };
    let mut reader = match CaptureReader::from_source("input", source) {
        Ok(reader) => reader,
        Err(error) => return Outcome { error: Some(error.to_string()), ..outcome },
    };
    loop {
        let batch = reader.next_batch(&mut |frames| {
            for frame in frames.iter() {
                assert!(frame.len() <= PACKET_LEN_MAX);
                assert!(frame.meta.original_len as usize >= frame.len());
                outcome.packets.push((frame.meta.time.0, frame.bytes().to_vec()));
            }
        });
        match batch {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                outcome.error = Some(error.to_string());
                break;
            }
        }
    }
    outcome.truncated = reader.stats().truncated_records;
    outcome
}
