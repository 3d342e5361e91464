//! rust-libp2p's gossipsub, driven over standard input and output: a peer of the interoperation
//! tests (../README.md) or, after the argument `bench`, nodes of the mesh bench (src/bench.rs).

mod behaviour;
mod bench;
mod messages;
mod peer;
mod protocol;
mod settings;
mod traffic;

use std::{error::Error, process::exit};

use serde_json::json;

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bench", settings] => measure(settings),
        [settings] => interoperate(settings),
        _ => end(Err(
            "the settings are missing: pass one JSON object as the last argument".into(),
        )),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn interoperate(settings: &str) {
    end(run(settings).await);
}

async fn run(settings: &str) -> Outcome {
    peer::Peer::start(settings::Settings::parse(settings)?)?
        .run()
        .await
}

/// On a worker thread for each core: tokio's default, and what rust-libp2p normally runs on.
#[tokio::main]
async fn measure(settings: &str) {
    end(bench::run(settings).await);
}

fn end(outcome: Outcome) -> ! {
    if let Err(error) = outcome {
        protocol::event("fatal", json!({ "error": error.to_string() }));
        exit(1);
    }
    // Not by returning: the runtime would first wait for the thread that blocks on standard input.
    exit(0);
}
