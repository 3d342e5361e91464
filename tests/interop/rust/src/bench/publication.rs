//! A run that a node is publishing.

use std::{time::Duration, vec};

use libp2p::gossipsub::{self, IdentTopic, TopicHash};
use serde_json::json;
use tokio::time::Instant;

use super::{commands::Order, payload};
use crate::protocol::Question;

pub struct Publication {
    question: Question,
    run: u32,
    topic: TopicHash,
    payloads: vec::IntoIter<Vec<u8>>,
    rate: f64,
    offered: u32,
    taken: u32,
    start: Option<Start>,
}

struct Start {
    instant: Instant,
    /// Nanoseconds of the real-time clock.
    clock: u64,
}

impl Publication {
    /// Builds all payloads.
    pub fn new(order: Order, question: Question) -> Self {
        Self {
            question,
            run: order.run,
            topic: IdentTopic::new(order.topic).hash(),
            payloads: payload::build(order.run, order.count, order.size).into_iter(),
            rate: order.rate,
            offered: 0,
            taken: 0,
            start: None,
        }
    }

    /// When the next message is to be offered; None for at once.
    pub fn due(&self) -> Option<Instant> {
        let start = self.start.as_ref().filter(|_| self.rate > 0.0)?;
        Some(start.instant + Duration::from_secs_f64(f64::from(self.offered) / self.rate))
    }

    /// Offers the next message. Gives the publication back unless it was the last one.
    pub fn offer(mut self, gossipsub: &mut gossipsub::Behaviour) -> Option<Self> {
        let start = self.start.get_or_insert_with(|| Start {
            instant: Instant::now(),
            clock: payload::now(),
        });
        let began = start.clock;
        if let Some(mut data) = self.payloads.next() {
            payload::stamp(&mut data);
            match gossipsub.publish(self.topic.clone(), data) {
                Ok(_) => self.taken += 1,
                Err(error) => eprintln!("run {}, message {}: {error}", self.run, self.offered),
            }
            self.offered += 1;
        }
        if self.payloads.len() > 0 {
            return Some(self);
        }
        self.question.answer(json!({
            "taken": self.taken, "began": began, "ended": payload::now(),
        }));
        None
    }
}
