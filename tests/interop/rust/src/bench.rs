//! Nodes of the mesh bench, driven as bench/PROTOCOL.md says.

mod behaviour;
mod commands;
mod heartbeat;
mod inbox;
mod node;
mod payload;
mod publication;

use std::{error::Error, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::{Instant, sleep},
};

use crate::{
    protocol::{self, Question},
    settings::Policy,
};
use commands::Command;
use inbox::Shared;
use node::Node;
use publication::Publication;

/// How often `wait` looks at what has come. The times that are answered are not of this grain:
/// each message is stamped when it comes. A guess.
const WAIT_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Deserialize)]
struct Settings {
    nodes: usize,
    policy: Policy,
    heartbeats: bool,
}

/// Returns at the end of standard input.
pub async fn run(settings: &str) -> Result<(), Box<dyn Error>> {
    let settings: Settings =
        serde_json::from_str(settings).map_err(|error| format!("settings: {error}"))?;
    let mut nodes = Vec::with_capacity(settings.nodes);
    for index in 0..settings.nodes {
        // Heartbeats of node 0 alone are asked for.
        let heartbeats = settings.heartbeats && index == 0;
        nodes.push(Node::start(settings.policy, heartbeats).await?);
    }
    let listening: Vec<_> = nodes
        .iter()
        .map(|node| json!({ "peer": node.peer.to_string(), "address": node.address }))
        .collect();
    let versions = json!({
        "libp2p": env!("LIBP2P_VERSION"),
        "libp2p-gossipsub": env!("GOSSIPSUB_VERSION"),
        "rustc": env!("RUSTC_VERSION"),
    });
    protocol::event(
        "listening",
        json!({ "nodes": listening, "versions": versions }),
    );

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((question, command)) = protocol::command(&line)? {
            obey(&nodes, question, command).await;
        }
    }
    Ok(())
}

async fn obey(nodes: &[Node], question: Question, command: Command) {
    if let Some(index) = command.node()
        && index >= nodes.len()
    {
        return question.fail(format!("there is no node {index}"));
    }
    match command {
        Command::Connect { node, address } => nodes[node].connect(address, question),
        Command::Subscribe { node, topics } => match nodes[node].subscribe(topics).await {
            Ok(()) => question.answer(json!({})),
            Err(error) => question.fail(error),
        },
        Command::Peers { node, topic } => {
            question.answer(json!({ "count": nodes[node].peers(topic).await }));
        }
        Command::Publish { order, .. } if order.size < payload::MIN_SIZE => {
            question.fail(format!(
                "a message has at least {} bytes",
                payload::MIN_SIZE
            ));
        }
        Command::Publish { node, order } => {
            let requests = nodes[node].requests.clone();
            // Beside everything else, since payloads of a long run take a while to build.
            tokio::task::spawn_blocking(move || {
                // An error says that the process ends.
                let _ = requests.send(node::Request::Publish(Publication::new(order, question)));
            });
        }
        Command::Received { run } => question.answer(received(&inboxes(nodes), run)),
        Command::Wait {
            run,
            count,
            silence,
        } => match Duration::try_from_secs_f64(silence) {
            Ok(silence) => {
                tokio::spawn(wait(inboxes(nodes), run, count, silence, question));
            }
            Err(error) => question.fail(error),
        },
        Command::Latencies { run } => {
            let all: Vec<i64> = nodes
                .iter()
                .flat_map(|node| inbox::lock(&node.inbox).latencies(run).to_vec())
                .collect();
            question.answer(json!({ "ns": all }));
        }
        Command::Heartbeats => {
            let seconds = nodes.first().map(|node| node.heartbeats.take());
            question.answer(json!({ "seconds": seconds.unwrap_or_default() }));
        }
        Command::Forget { run } => {
            for node in nodes {
                inbox::lock(&node.inbox).forget(run);
            }
            question.answer(json!({}));
        }
    }
}

fn inboxes(nodes: &[Node]) -> Vec<Shared> {
    nodes.iter().map(|node| node.inbox.clone()).collect()
}

async fn wait(inboxes: Vec<Shared>, run: u32, count: u64, silence: Duration, question: Question) {
    let mut got = total(&inboxes, run);
    let mut changed = Instant::now();
    while inboxes
        .iter()
        .any(|inbox| inbox::lock(inbox).lacks(run, count))
    {
        sleep(WAIT_INTERVAL).await;
        let now_got = total(&inboxes, run);
        if now_got != got {
            (got, changed) = (now_got, Instant::now());
        } else if changed.elapsed() >= silence {
            break;
        }
    }
    question.answer(received(&inboxes, run));
}

/// How many messages of the run came to all nodes together.
fn total(inboxes: &[Shared], run: u32) -> u64 {
    let tallies = inboxes.iter().map(|inbox| inbox::lock(inbox).tally(run));
    tallies.map(|tally| tally.distinct).sum()
}

fn received(inboxes: &[Shared], run: u32) -> Value {
    let tallies: Vec<_> = inboxes
        .iter()
        .map(|inbox| inbox::lock(inbox).tally(run))
        .collect();
    json!({
        "counts": tallies.iter().map(|tally| tally.distinct).collect::<Vec<_>>(),
        "repeated": tallies.iter().map(|tally| tally.repeated).sum::<u64>(),
        "wrong": tallies.iter().map(|tally| tally.wrong).sum::<u64>(),
        "last": tallies.iter().map(|tally| tally.last).max(),
    })
}
