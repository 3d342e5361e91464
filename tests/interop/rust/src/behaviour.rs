//! rust-libp2p's gossipsub with the parameters that ../README.md asks of every peer.

use std::{error::Error, time::Duration};

use libp2p::{
    gossipsub::{
        self, ConfigBuilder, IdentTopic, MessageAuthenticity, MessageId, PeerScoreParams,
        PeerScoreThresholds, TopicScoreParams, ValidationMode,
    },
    identify,
    identity::Keypair,
    ping,
    swarm::NetworkBehaviour,
};
use sha2::{Digest, Sha256};

use crate::settings::{Policy, Settings};

pub const MAX_FRAME: usize = 4 * 1024 * 1024;

/// The library abandons queued messages after 1 s (forwarded) and 5 s (published), which on a busy
/// machine shows as losses that have nothing to do with the other side. This is a guess.
const QUEUE_PATIENCE: Duration = Duration::from_secs(60);

#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub gossipsub: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

impl Behaviour {
    pub fn new(settings: &Settings, key: &Keypair) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let authenticity = match settings.policy {
            Policy::Sign => MessageAuthenticity::Signed(key.clone()),
            Policy::NoSign => MessageAuthenticity::Anonymous,
        };
        let mut gossipsub = gossipsub::Behaviour::new(authenticity, config(settings)?)?;
        gossipsub.with_peer_score(score_params(settings), score_thresholds())?;
        Ok(Self {
            gossipsub,
            identify: identify::Behaviour::new(identify::Config::new(
                "/ipfs/0.1.0".to_owned(),
                key.public(),
            )),
            ping: ping::Behaviour::default(),
        })
    }
}

fn config(settings: &Settings) -> Result<gossipsub::Config, gossipsub::ConfigBuilderError> {
    let mut config = ConfigBuilder::default();
    match settings.policy {
        Policy::Sign => config
            .validation_mode(ValidationMode::Strict)
            .message_id_fn(origin_id),
        Policy::NoSign => config
            .validation_mode(ValidationMode::Anonymous)
            .message_id_fn(content_id),
    };
    config
        .flood_publish(settings.flood_publish)
        .validate_messages()
        .idontwant_message_size_threshold(settings.idontwant_threshold)
        .mesh_n(settings.d)
        .mesh_n_low(settings.d_lo)
        .mesh_n_high(settings.d_hi)
        .mesh_outbound_min(settings.d_out)
        .gossip_lazy(settings.d_lazy)
        .heartbeat_initial_delay(Duration::ZERO)
        .heartbeat_interval(settings.heartbeat)
        .prune_backoff(settings.prune_backoff)
        .unsubscribe_backoff(settings.unsubscribe_backoff)
        .max_transmit_size(MAX_FRAME)
        .publish_queue_duration(QUEUE_PATIENCE)
        .forward_queue_duration(QUEUE_PATIENCE)
        .build()
}

/// The library's own default is the author's id in base58 and the seqno in decimal digits, which no
/// other implementation shares.
fn origin_id(message: &gossipsub::Message) -> MessageId {
    let author = message.source.map(|peer| peer.to_bytes());
    let seqno = message.sequence_number.unwrap_or_default();
    MessageId([author.unwrap_or_default(), seqno.to_be_bytes().to_vec()].concat())
}

pub fn content_id(message: &gossipsub::Message) -> MessageId {
    let topic = message.topic.as_str().as_bytes();
    let hash = Sha256::new()
        .chain_update((topic.len() as u32).to_be_bytes())
        .chain_update(topic)
        .chain_update(&message.data);
    MessageId(hash.finalize().to_vec())
}

fn score_params(settings: &Settings) -> PeerScoreParams {
    let delivery_weight = if settings.expected_deliveries > 0.0 {
        -1.0
    } else {
        0.0
    };
    let topic = TopicScoreParams {
        topic_weight: 1.0,
        time_in_mesh_weight: 0.0,
        first_message_deliveries_weight: 0.0,
        mesh_message_deliveries_weight: delivery_weight,
        mesh_message_deliveries_decay: 0.999,
        mesh_message_deliveries_cap: 1000.0,
        mesh_message_deliveries_threshold: settings.expected_deliveries,
        mesh_message_deliveries_window: Duration::from_secs(2),
        mesh_message_deliveries_activation: settings.activation,
        mesh_failure_penalty_weight: delivery_weight,
        mesh_failure_penalty_decay: 0.999,
        invalid_message_deliveries_weight: -10.0,
        invalid_message_deliveries_decay: 0.9999,
        ..Default::default()
    };
    PeerScoreParams {
        topics: [(IdentTopic::new(&settings.topic).hash(), topic)].into(),
        topic_score_cap: 0.0,
        app_specific_weight: 0.0,
        ip_colocation_factor_weight: 0.0,
        behaviour_penalty_weight: -10.0,
        behaviour_penalty_threshold: 0.0,
        behaviour_penalty_decay: 0.9999,
        slow_peer_weight: 0.0,
        decay_interval: Duration::from_secs(1),
        decay_to_zero: 0.01,
        retain_score: Duration::from_secs(3600),
        ..Default::default()
    }
}

fn score_thresholds() -> PeerScoreThresholds {
    PeerScoreThresholds {
        gossip_threshold: -10.0,
        publish_threshold: -50.0,
        graylist_threshold: -100.0,
        accept_px_threshold: 0.0,
        opportunistic_graft_threshold: 0.0,
    }
}
