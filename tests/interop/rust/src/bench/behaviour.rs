//! rust-libp2p's gossipsub by its defaults, but for what would lose messages or refuse peers.

use std::{error::Error, time::Duration};

use libp2p::{
    gossipsub::{self, ConfigBuilder, MessageAuthenticity, ValidationMode},
    identify,
    identity::Keypair,
    ping,
    swarm::NetworkBehaviour,
};

use super::heartbeat::{Durations, Timed};
use crate::{
    behaviour::{MAX_FRAME, content_id},
    settings::Policy,
};

/// Messages that wait for one peer. The library refuses, or drops, what exceeds 5,000, and a run is
/// offered faster than a connection takes it. More than any run has; a guess.
const QUEUE_LENGTH: usize = 10_000_000;

/// The library abandons queued messages after 1 s (forwarded) and 5 s (published), and the end of a
/// run waits longer than that. More than any run takes; a guess.
const QUEUE_PATIENCE: Duration = Duration::from_secs(3600);

#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub gossipsub: Timed,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

impl Behaviour {
    /// `heartbeats`: where their durations go, if they are to be taken.
    pub fn new(
        policy: Policy,
        key: &Keypair,
        heartbeats: Option<Durations>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let authenticity = match policy {
            Policy::Sign => MessageAuthenticity::Signed(key.clone()),
            Policy::NoSign => MessageAuthenticity::Anonymous,
        };
        let gossipsub = gossipsub::Behaviour::new(authenticity, config(policy)?)?;
        let identify = identify::Config::new("/ipfs/0.1.0".to_owned(), key.public());
        Ok(Self {
            gossipsub: Timed::new(gossipsub, heartbeats),
            identify: identify::Behaviour::new(identify),
            ping: ping::Behaviour::default(),
        })
    }
}

fn config(policy: Policy) -> Result<gossipsub::Config, gossipsub::ConfigBuilderError> {
    let mut config = ConfigBuilder::default();
    match policy {
        // The id is the library's default: the author in base58, and the seqno in decimal digits.
        Policy::Sign => config.validation_mode(ValidationMode::Strict),
        Policy::NoSign => config
            .validation_mode(ValidationMode::Anonymous)
            .message_id_fn(content_id),
    };
    config
        .connection_handler_queue_len(QUEUE_LENGTH)
        .publish_queue_duration(QUEUE_PATIENCE)
        .forward_queue_duration(QUEUE_PATIENCE)
        // 64 KiB by default, which the messages of 500 KB exceed.
        .max_transmit_size(MAX_FRAME)
        // The library closes the stream at a frame with more than 16 KiB of control messages, and
        // takes no new one after the fifth; an IHAVE of its own 5,000 ids is longer.
        .max_control_message_size(MAX_FRAME)
        // It does so at a frame with more than 5,000 messages, too, which small ones can exceed.
        .max_publish_messages(usize::MAX)
        .build()
}
