//! What control messages and refusals there were.
//!
//! The library has neither events nor hooks for control traffic. Its debug log names every RPC in
//! both directions, though, in the `Debug` form of its types; that form is read here. Cargo.toml
//! pins the library's version, so that it cannot change unnoticed.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use serde_json::json;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer, Registry,
    filter::filter_fn,
    layer::{Context, SubscriberExt},
};

use crate::protocol;

const RECEIVED: &str = "Received gossipsub message";
const SENT: &str = "Sending gossipsub message";
const DUPLICATE: &str = "Message already received, ignoring";
const REJECTED: &str =
    "[Penalty] Message from peer rejected because of ValidationError or SelfOrigin";

#[derive(Default, Serialize)]
pub struct Control {
    graft: usize,
    prune: usize,
    ihave: usize,
    iwant: usize,
    idontwant: usize,
}

#[derive(Default, Serialize)]
pub struct Traffic {
    sent: Control,
    got: Control,
    duplicates: usize,
    rejected: usize,
}

pub type Shared = Arc<Mutex<Traffic>>;

/// Installs the reader of the log for the whole process.
pub fn record(topic: &str) -> Result<Shared, tracing::subscriber::SetGlobalDefaultError> {
    let traffic = Shared::default();
    let recorder = Recorder {
        topic: format!("TopicHash {{ hash: {topic:?} }}"),
        traffic: traffic.clone(),
    };
    let of_gossipsub = filter_fn(|metadata| {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("libp2p_gossipsub")
    });
    tracing::subscriber::set_global_default(
        Registry::default().with(recorder.with_filter(of_gossipsub)),
    )?;
    Ok(traffic)
}

struct Recorder {
    /// The topic as the log writes it.
    topic: String,
    traffic: Shared,
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        match line.text.as_str() {
            SENT => count(&mut traffic.sent, &line.rpc),
            RECEIVED => {
                count(&mut traffic.got, &line.rpc);
                self.report(&line);
            }
            DUPLICATE => traffic.duplicates += 1,
            REJECTED => traffic.rejected += 1,
            _ if *event.metadata().level() <= Level::WARN || line.text.starts_with("Failed") => {
                eprintln!("{} {}", line.peer, line.text);
            }
            _ => {}
        }
    }
}

impl Recorder {
    fn report(&self, line: &Line) {
        for part in parts(&line.rpc).filter(|part| part.text.contains(&self.topic)) {
            match part.kind {
                Kind::Graft => protocol::event("graft", json!({ "peer": line.peer })),
                Kind::Prune => protocol::event(
                    "prune",
                    json!({ "peer": line.peer, "backoff": backoff(part.text) }),
                ),
                _ => {}
            }
        }
    }
}

/// The fields of one line of the log.
#[derive(Default)]
struct Line {
    peer: String,
    text: String,
    rpc: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "peer" => self.peer = format!("{value:?}"),
            // Lines about an RPC have two fields of this name: the text, and then the RPC.
            "message" if self.text.is_empty() => self.text = format!("{value:?}"),
            "message" => self.rpc = format!("{value:?}"),
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Graft,
    Prune,
    IHave,
    IWant,
    IDontWant,
}

const KINDS: [(&str, Kind); 5] = [
    ("Graft(Graft {", Kind::Graft),
    ("Prune(Prune {", Kind::Prune),
    ("IHave(IHave {", Kind::IHave),
    ("IWant(IWant {", Kind::IWant),
    ("IDontWant(IDontWant {", Kind::IDontWant),
];

struct Part<'a> {
    kind: Kind,
    text: &'a str,
}

/// The control messages of an RPC in `Debug` form, each with its text.
fn parts(rpc: &str) -> impl Iterator<Item = Part<'_>> {
    let mut starts: Vec<_> = KINDS
        .iter()
        .flat_map(|&(mark, kind)| rpc.match_indices(mark).map(move |(at, _)| (at, kind)))
        .collect();
    starts.sort_unstable_by_key(|&(at, _)| at);
    let ends: Vec<_> = starts.iter().skip(1).map(|&(at, _)| at).collect();
    starts
        .into_iter()
        .zip(ends.into_iter().chain([rpc.len()]))
        .map(|((start, kind), end)| Part {
            kind,
            text: &rpc[start..end],
        })
}

fn count(control: &mut Control, rpc: &str) {
    for Part { kind, text } in parts(rpc) {
        let ids = text.matches("MessageId(").count();
        match kind {
            Kind::Graft => control.graft += 1,
            Kind::Prune => control.prune += 1,
            Kind::IHave => control.ihave += ids,
            Kind::IWant => control.iwant += ids,
            Kind::IDontWant => control.idontwant += ids,
        }
    }
}

/// The backoff of a PRUNE in `Debug` form, in seconds.
fn backoff(prune: &str) -> Option<u64> {
    let (_, rest) = prune.split_once("backoff: Some(")?;
    rest.split_once(')')?.0.parse().ok()
}
