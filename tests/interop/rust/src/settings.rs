use std::{error::Error, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use libp2p::identity::Keypair;
use serde::{Deserialize, Deserializer};

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    Sign,
    NoSign,
}

#[derive(Deserialize)]
pub struct Settings {
    pub topic: String,
    pub port: u16,
    #[serde(deserialize_with = "keypair")]
    pub secret: Keypair,
    pub policy: Policy,
    pub flood_publish: bool,
    #[serde(deserialize_with = "seconds")]
    pub validation_delay: Duration,
    pub idontwant_threshold: usize,
    pub d: usize,
    pub d_lo: usize,
    pub d_hi: usize,
    pub d_out: usize,
    pub d_lazy: usize,
    #[serde(deserialize_with = "seconds")]
    pub heartbeat: Duration,
    #[serde(deserialize_with = "seconds")]
    pub prune_backoff: Duration,
    #[serde(deserialize_with = "seconds")]
    pub unsubscribe_backoff: Duration,
    pub expected_deliveries: f64,
    #[serde(deserialize_with = "seconds")]
    pub activation: Duration,
}

impl Settings {
    pub fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        serde_json::from_str(text).map_err(|error| format!("settings: {error}").into())
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn keypair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Keypair, D::Error> {
    let encoded = String::deserialize(deserializer)?;
    let bytes = STANDARD.decode(encoded).map_err(serde::de::Error::custom)?;
    Keypair::from_protobuf_encoding(&bytes).map_err(serde::de::Error::custom)
}
