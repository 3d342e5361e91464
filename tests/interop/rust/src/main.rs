//! One rust-libp2p gossipsub peer, driven over standard input and output (../README.md).

mod behaviour;
mod messages;
mod peer;
mod protocol;
mod settings;
mod traffic;

use std::error::Error;

use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Err(error) = run().await {
        protocol::event("fatal", json!({ "error": error.to_string() }));
        std::process::exit(1);
    }
    // Not by returning: the runtime would first wait for the thread that blocks on standard input.
    std::process::exit(0);
}

async fn run() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args()
        .nth(1)
        .ok_or("the settings are missing: pass one JSON object as the only argument")?;
    let settings = settings::Settings::parse(&argument)?;
    peer::Peer::start(settings)?.run().await
}
