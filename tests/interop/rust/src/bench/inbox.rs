//! What a node got.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use super::payload;

pub type Shared = Arc<Mutex<Inbox>>;

pub fn lock(inbox: &Shared) -> MutexGuard<'_, Inbox> {
    inbox.lock().expect("no holder panics")
}

#[derive(Default)]
pub struct Inbox {
    runs: HashMap<u32, Run>,
    subscribed: bool,
    /// Messages too short to say what run they are of; they are counted as wrong in every run.
    unreadable: u64,
}

#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub distinct: u64,
    pub repeated: u64,
    pub wrong: u64,
    /// When the last different message came; 0 where none did.
    pub last: u64,
}

struct Run {
    size: usize,
    /// A bit for each index.
    seen: Vec<u64>,
    /// Nanoseconds from publication to delivery.
    latencies: Vec<i64>,
    tally: Tally,
}

impl Inbox {
    pub fn note(&mut self, data: &[u8]) {
        let now = payload::now();
        let Some(head) = payload::read(data) else {
            self.unreadable += 1;
            return;
        };
        let run = self.runs.entry(head.run).or_insert_with(|| Run {
            size: data.len(),
            seen: Vec::new(),
            latencies: Vec::new(),
            tally: Tally::default(),
        });
        if data.len() != run.size || head.tail != head.index {
            run.tally.wrong += 1;
        } else if run.mark(head.index) {
            run.tally.distinct += 1;
            run.tally.last = now;
            run.latencies
                .push(now.cast_signed() - head.published.cast_signed());
        } else {
            run.tally.repeated += 1;
        }
    }

    pub fn subscribe(&mut self) {
        self.subscribed = true;
    }

    /// Whether this node is to get `count` messages of the run and has not got them yet.
    pub fn lacks(&self, run: u32, count: u64) -> bool {
        self.subscribed && self.tally(run).distinct < count
    }

    pub fn tally(&self, run: u32) -> Tally {
        let tally = self.runs.get(&run).map(|run| run.tally);
        let mut tally = tally.unwrap_or_default();
        tally.wrong += self.unreadable;
        tally
    }

    pub fn latencies(&self, run: u32) -> &[i64] {
        self.runs.get(&run).map_or(&[], |run| &run.latencies)
    }

    pub fn forget(&mut self, run: u32) {
        self.runs.remove(&run);
    }
}

impl Run {
    /// Whether the index is a new one.
    fn mark(&mut self, index: u32) -> bool {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        new
    }
}
