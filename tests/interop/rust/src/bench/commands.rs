use libp2p::Multiaddr;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Command {
    Connect {
        node: usize,
        address: Multiaddr,
    },
    Subscribe {
        node: usize,
        topics: Vec<String>,
    },
    Peers {
        node: usize,
        topic: String,
    },
    Publish {
        node: usize,
        #[serde(flatten)]
        order: Order,
    },
    Received {
        run: u32,
    },
    Wait {
        run: u32,
        count: u64,
        silence: f64,
    },
    Latencies {
        run: u32,
    },
    Heartbeats,
    Forget {
        run: u32,
    },
}

impl Command {
    pub fn node(&self) -> Option<usize> {
        match *self {
            Self::Connect { node, .. }
            | Self::Subscribe { node, .. }
            | Self::Peers { node, .. }
            | Self::Publish { node, .. } => Some(node),
            _ => None,
        }
    }
}

/// What is to be published.
#[derive(Deserialize)]
pub struct Order {
    pub topic: String,
    pub run: u32,
    pub count: u32,
    pub size: usize,
    /// Messages a second; 0 for as fast as they are taken.
    pub rate: f64,
}
