//! The content of the messages that peers send each other, and the count of what arrived.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

pub fn body(tag: &str, index: u64, size: usize) -> Vec<u8> {
    let mut body = format!("{tag}:{index}:").into_bytes();
    body.truncate(size);
    // The byte 7·i mod 256 depends on i mod 256 alone, so that truncating i loses nothing.
    body.extend((body.len()..size).map(|i| (i as u8).wrapping_mul(7)));
    body
}

fn head(data: &[u8]) -> Option<(&str, u64)> {
    let mut parts = data.splitn(3, |&byte| byte == b':');
    let tag = std::str::from_utf8(parts.next()?).ok()?;
    let index = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    parts.next().map(|_| (tag, index))
}

#[derive(Default, Serialize)]
struct Tally {
    distinct: u64,
    repeated: u64,
    wrong: u64,
    #[serde(skip)]
    seen: HashSet<u64>,
}

/// What the application got, by tag; data without a readable head counts as wrong under the tag "".
#[derive(Default, Serialize)]
#[serde(transparent)]
pub struct Inbox(BTreeMap<String, Tally>);

impl Inbox {
    pub fn note(&mut self, data: &[u8]) {
        let (tag, index) = head(data).unwrap_or_default();
        let tally = self.0.entry(tag.to_owned()).or_default();
        if body(tag, index, data.len()) != data {
            tally.wrong += 1;
        } else if tally.seen.insert(index) {
            tally.distinct += 1;
        } else {
            tally.repeated += 1;
        }
    }
}
