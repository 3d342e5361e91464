//! One host: its swarm, in a task of its own, and what can be asked of it.

use std::{collections::HashMap, error::Error, future, process::exit};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder,
    gossipsub::{self, IdentTopic, SubscriptionError},
    multiaddr::Protocol,
    noise,
    swarm::{
        ConnectionId, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
    tcp, yamux,
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    behaviour::{Behaviour, BehaviourEvent},
    heartbeat::Durations,
    inbox::{self, Shared},
    publication::Publication,
};
use crate::{
    protocol::{self, Question},
    settings::Policy,
};

pub struct Node {
    pub peer: PeerId,
    pub address: Multiaddr,
    pub inbox: Shared,
    pub heartbeats: Durations,
    pub requests: mpsc::UnboundedSender<Request>,
}

pub enum Request {
    Connect(Multiaddr, Question),
    Subscribe(Vec<String>, oneshot::Sender<Result<(), SubscriptionError>>),
    Peers(String, oneshot::Sender<usize>),
    Publish(Publication),
}

/// Messages offered in a row before the swarm is polled again and the tasks of its connections get
/// their turn; the library only queues them in `publish`, and its queues take any number. Without
/// turns in between, a run would wait in memory and be sent late. Publishers at 1 KB, unsigned, took
/// 20 µs of CPU time a message with 1, 16 µs with 16, and 15 µs with a whole run at once, which came
/// no sooner at 1 KB, later at 500 KB, and much later in a full mesh of six, where each IDONTWANT
/// makes the library search the whole queue of a peer.
const BURST: usize = 16;

/// A node's task ends only with the process.
const RUNNING: &str = "the node's task runs";

impl Node {
    /// Returns once it listens. `heartbeats`: whether their durations are to be taken.
    pub async fn start(policy: Policy, heartbeats: bool) -> Result<Self, Box<dyn Error>> {
        let durations = Durations::default();
        let taken = heartbeats.then(|| durations.clone());
        let mut swarm = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(
                tcp::Config::default(),
                noise::Config::new,
                yamux::Config::default,
            )?
            .with_behaviour(|key| Behaviour::new(policy, key, taken))?
            .build();
        let peer = *swarm.local_peer_id();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
        let address = loop {
            match swarm.select_next_some().await {
                SwarmEvent::NewListenAddr { address, .. } => break address,
                SwarmEvent::ListenerClosed { reason, .. } => reason?,
                _ => {}
            }
        };
        let (sender, requests) = mpsc::unbounded_channel();
        let inbox = Shared::default();
        let host = Host {
            swarm,
            requests,
            inbox: inbox.clone(),
            dials: HashMap::new(),
            publications: Vec::new(),
        };
        tokio::spawn(host.run());
        Ok(Self {
            peer,
            address: address.with(Protocol::P2p(peer)),
            inbox,
            heartbeats: durations,
            requests: sender,
        })
    }

    pub fn connect(&self, address: Multiaddr, question: Question) {
        self.request(Request::Connect(address, question));
    }

    pub async fn subscribe(&self, topics: Vec<String>) -> Result<(), SubscriptionError> {
        inbox::lock(&self.inbox).subscribe();
        let (answer, answered) = oneshot::channel();
        self.request(Request::Subscribe(topics, answer));
        answered.await.expect(RUNNING)
    }

    /// How many peers it knows to be subscribed to the topic.
    pub async fn peers(&self, topic: String) -> usize {
        let (answer, answered) = oneshot::channel();
        self.request(Request::Peers(topic, answer));
        answered.await.expect(RUNNING)
    }

    fn request(&self, request: Request) {
        self.requests.send(request).expect(RUNNING);
    }
}

struct Host {
    swarm: Swarm<Behaviour>,
    requests: mpsc::UnboundedReceiver<Request>,
    inbox: Shared,
    dials: HashMap<ConnectionId, Question>,
    publications: Vec<Publication>,
}

impl Host {
    async fn run(mut self) {
        loop {
            tokio::select! {
                Some(request) = self.requests.recv() => self.obey(request),
                event = self.swarm.select_next_some() => self.handle(event),
                () = due(&self.publications) => {
                    self.publish();
                    yield_now().await;
                }
            }
        }
    }

    /// Offers what is due.
    fn publish(&mut self) {
        for _ in 0..BURST {
            match earliest(&self.publications) {
                Some((next, due)) if due <= Instant::now() => {
                    let publication = self.publications.swap_remove(next);
                    let rest = publication.offer(self.gossipsub());
                    self.publications.extend(rest);
                }
                _ => break,
            }
        }
    }

    fn gossipsub(&mut self) -> &mut gossipsub::Behaviour {
        &mut self.swarm.behaviour_mut().gossipsub.inner
    }

    fn obey(&mut self, request: Request) {
        match request {
            Request::Connect(address, question) => self.connect(address, question),
            Request::Subscribe(topics, answer) => {
                let told = topics.iter().try_for_each(|topic| {
                    let topic = IdentTopic::new(topic);
                    self.gossipsub().subscribe(&topic).map(|_| ())
                });
                answer.send(told).expect("the command waits for it");
            }
            Request::Peers(topic, answer) => {
                let topic = IdentTopic::new(topic).hash();
                let peers = self.gossipsub().all_peers();
                let count = peers.filter(|(_, topics)| topics.contains(&&topic)).count();
                answer.send(count).expect("the command waits for it");
            }
            Request::Publish(publication) => self.publications.push(publication),
        }
    }

    fn connect(&mut self, address: Multiaddr, question: Question) {
        let Some(Protocol::P2p(peer)) = address.iter().last() else {
            return question.fail(format!("{address} does not end in /p2p/ and a peer id"));
        };
        if self.swarm.is_connected(&peer) {
            return question.answer(json!({}));
        }
        let options = DialOpts::peer_id(peer)
            .condition(PeerCondition::Always)
            .addresses(vec![address])
            .build();
        let connection = options.connection_id();
        match self.swarm.dial(options) {
            Ok(()) => {
                self.dials.insert(connection, question);
            }
            Err(error) => question.fail(error),
        }
    }

    fn handle(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(gossipsub::Event::Message {
                message,
                ..
            })) => inbox::lock(&self.inbox).note(&message.data),
            SwarmEvent::ConnectionEstablished { connection_id, .. } => {
                if let Some(question) = self.dials.remove(&connection_id) {
                    question.answer(json!({}));
                }
            }
            SwarmEvent::OutgoingConnectionError {
                connection_id,
                error,
                ..
            } => {
                if let Some(question) = self.dials.remove(&connection_id) {
                    question.fail(error);
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, cause, .. } => {
                eprintln!("connection to {peer_id} closed: {cause:?}");
            }
            SwarmEvent::ListenerClosed {
                reason: Err(error), ..
            } => {
                protocol::event("fatal", json!({ "error": error.to_string() }));
                exit(1);
            }
            _ => {}
        }
    }
}

/// Waits until a message is due.
async fn due(publications: &[Publication]) {
    match earliest(publications) {
        Some((_, due)) if due <= Instant::now() => {}
        Some((_, due)) => sleep_until(due).await,
        None => future::pending().await,
    }
}

/// Which publication is next, and when.
fn earliest(publications: &[Publication]) -> Option<(usize, Instant)> {
    let now = Instant::now();
    let dues = publications.iter().map(|one| one.due().unwrap_or(now));
    dues.enumerate().min_by_key(|&(_, due)| due)
}
