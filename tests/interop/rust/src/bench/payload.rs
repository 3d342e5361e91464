//! The bytes of a message of the bench.

use std::time::SystemTime;

const HEAD: usize = 16;
const TAIL: usize = 4;
pub const MIN_SIZE: usize = HEAD + TAIL + 4;

/// Nanoseconds of the system's real-time clock.
pub fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    // The year 2554 is the first that does not fit.
    since.expect("the clock is later than 1970").as_nanos() as u64
}

/// The messages of a run, all but their times.
pub fn build(run: u32, count: u32, size: usize) -> Vec<Vec<u8>> {
    // The byte 7·i mod 256 depends on i mod 256 alone, so that truncating i loses nothing.
    let mut data: Vec<u8> = (0..size).map(|i| (i as u8).wrapping_mul(7)).collect();
    data[..4].copy_from_slice(&run.to_be_bytes());
    (0..count)
        .map(|index| {
            data[4..8].copy_from_slice(&index.to_be_bytes());
            data[size - TAIL..].copy_from_slice(&index.to_be_bytes());
            data.clone()
        })
        .collect()
}

pub fn stamp(data: &mut [u8]) {
    data[8..HEAD].copy_from_slice(&now().to_be_bytes());
}

pub struct Head {
    pub run: u32,
    pub index: u32,
    pub published: u64,
    /// The index again, from the message's end.
    pub tail: u32,
}

/// None where the message is too short.
pub fn read(data: &[u8]) -> Option<Head> {
    if data.len() < MIN_SIZE {
        return None;
    }
    let (run, rest) = data.split_first_chunk()?;
    let (index, rest) = rest.split_first_chunk()?;
    let (published, rest) = rest.split_first_chunk()?;
    Some(Head {
        run: u32::from_be_bytes(*run),
        index: u32::from_be_bytes(*index),
        published: u64::from_be_bytes(*published),
        tail: u32::from_be_bytes(*rest.last_chunk()?),
    })
}
