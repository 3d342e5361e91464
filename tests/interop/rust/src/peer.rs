//! The swarm, and what the runner makes it do.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    error::Error,
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder,
    core::transport::ListenerId,
    gossipsub::{self, IdentTopic, MessageAcceptance, MessageId},
    multiaddr::Protocol,
    noise,
    swarm::{
        ConnectionId, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
    tcp, yamux,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    behaviour::{Behaviour, BehaviourEvent},
    messages::{Inbox, body},
    protocol::{self, Command, Question},
    settings::Settings,
    traffic,
};

/// Scores fall and rise between two looks; the protocol asks for one a second or more.
const SCORE_INTERVAL: Duration = Duration::from_millis(200);

/// How long to wait for connections to close before giving up.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

struct Publication {
    question: Question,
    tag: String,
    count: u64,
    size: usize,
    interval: Duration,
    next: u64,
    published: u64,
    due: Instant,
}

struct Validation {
    due: Instant,
    source: PeerId,
    id: MessageId,
    data: Vec<u8>,
}

pub struct Peer {
    swarm: Swarm<Behaviour>,
    commands: Lines<BufReader<Stdin>>,
    listener: ListenerId,
    topic: IdentTopic,
    validation_delay: Duration,
    /// In order of their due time, since the delay is the same for all.
    validations: VecDeque<Validation>,
    publications: Vec<Publication>,
    dials: HashMap<ConnectionId, Question>,
    inbox: Inbox,
    traffic: traffic::Shared,
    lowest: HashMap<PeerId, f64>,
    next_look: Instant,
}

impl Peer {
    pub fn start(settings: Settings) -> Result<Self, Box<dyn Error>> {
        let traffic = traffic::record(&settings.topic)?;
        let mut swarm = SwarmBuilder::with_existing_identity(settings.secret.clone())
            .with_tokio()
            .with_tcp(
                tcp::Config::default(),
                noise::Config::new,
                yamux::Config::default,
            )?
            .with_behaviour(|key| Behaviour::new(&settings, key))?
            .build();
        let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/{}", settings.port).parse()?;
        // The error's Display is empty; its Debug form has the cause.
        let listener = swarm
            .listen_on(address.clone())
            .map_err(|error| format!("cannot listen at {address}: {error:?}"))?;
        Ok(Self {
            listener,
            swarm,
            commands: BufReader::new(tokio::io::stdin()).lines(),
            topic: IdentTopic::new(settings.topic),
            validation_delay: settings.validation_delay,
            validations: VecDeque::new(),
            publications: Vec::new(),
            dials: HashMap::new(),
            inbox: Inbox::default(),
            traffic,
            lowest: HashMap::new(),
            next_look: Instant::now(),
        })
    }

    /// Returns after `stop`, or at the end of standard input.
    pub async fn run(mut self) -> Result<(), Box<dyn Error>> {
        loop {
            let due = self.due();
            tokio::select! {
                line = self.commands.next_line() => {
                    let Some(line) = line? else { return Ok(()) };
                    match protocol::command(&line)? {
                        Some((question, Command::Stop)) => return self.stop(question).await,
                        Some((question, command)) => self.obey(question, command),
                        None => {}
                    }
                }
                event = self.swarm.select_next_some() => self.handle(event)?,
                () = sleep_until(due) => {
                    self.work();
                    // Lets the connections' tasks send, when a publication is always due.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn gossipsub(&mut self) -> &mut gossipsub::Behaviour {
        &mut self.swarm.behaviour_mut().gossipsub
    }

    fn due(&self) -> Instant {
        let validation = self.validations.front().map(|validation| validation.due);
        let publications = self.publications.iter().map(|publication| publication.due);
        publications
            .chain(validation)
            .fold(self.next_look, Instant::min)
    }

    fn work(&mut self) {
        let now = Instant::now();
        if self.next_look <= now {
            self.look_at_scores();
            self.next_look = now + SCORE_INTERVAL;
        }
        while let Some(validation) = self.validations.pop_front_if(|first| first.due <= now) {
            self.accept(validation);
        }
        let (due, later) = std::mem::take(&mut self.publications)
            .into_iter()
            .partition(|publication| publication.due <= now);
        self.publications = later;
        for publication in due {
            self.publish(publication);
        }
    }

    fn obey(&mut self, question: Question, command: Command) {
        let topic = self.topic.clone();
        match command {
            Command::Connect { address } => self.connect(question, address),
            Command::Subscribe => match self.gossipsub().subscribe(&topic) {
                Ok(_) => question.answer(json!({})),
                Err(error) => question.fail(error),
            },
            Command::Unsubscribe => {
                self.gossipsub().unsubscribe(&topic);
                question.answer(json!({}));
            }
            Command::Publish {
                tag,
                count,
                size,
                rate,
            } => self.publish(Publication {
                question,
                tag,
                count,
                size,
                interval: Duration::try_from_secs_f64(rate.recip()).unwrap_or_default(),
                next: 0,
                published: 0,
                due: Instant::now(),
            }),
            Command::Status => {
                let status = self.status();
                question.answer(status);
            }
            Command::Stop => unreachable!("ends the loop that calls this"),
        }
    }

    fn connect(&mut self, question: Question, address: Multiaddr) {
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

    /// Publishes one message; the rest of the publication is queued for its time.
    fn publish(&mut self, mut publication: Publication) {
        if publication.next < publication.count {
            let topic = self.topic.hash();
            let data = body(&publication.tag, publication.next, publication.size);
            match self.gossipsub().publish(topic, data) {
                Ok(_) => publication.published += 1,
                Err(error) => eprintln!("{}:{}: {error}", publication.tag, publication.next),
            }
            publication.next += 1;
            publication.due += publication.interval;
        }
        if publication.next < publication.count {
            self.publications.push(publication);
        } else {
            publication
                .question
                .answer(json!({ "published": publication.published }));
        }
    }

    fn accept(&mut self, message: Validation) {
        self.inbox.note(&message.data);
        self.gossipsub().report_message_validation_result(
            &message.id,
            &message.source,
            MessageAcceptance::Accept,
        );
    }

    fn handle(&mut self, event: SwarmEvent<BehaviourEvent>) -> Result<(), Box<dyn Error>> {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                let id = *self.swarm.local_peer_id();
                let address = address.with(Protocol::P2p(id));
                protocol::event(
                    "listening",
                    json!({ "peer": id.to_string(), "address": address }),
                );
            }
            SwarmEvent::ListenerClosed {
                reason: Err(error), ..
            } => return Err(error.into()),
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
            SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            })) => {
                let validation = Validation {
                    due: Instant::now() + self.validation_delay,
                    source: propagation_source,
                    id: message_id,
                    data: message.data,
                };
                if self.validation_delay.is_zero() {
                    self.accept(validation);
                } else {
                    self.validations.push_back(validation);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_scores(&mut self) {
        for peer in self.swarm.connected_peers() {
            if let Some(score) = self.swarm.behaviour().gossipsub.peer_score(peer) {
                let lowest = self.lowest.entry(*peer).or_insert(score);
                *lowest = lowest.min(score);
            }
        }
    }

    fn status(&mut self) -> Value {
        #[derive(Serialize)]
        struct PeerStatus {
            protocol: Option<String>,
            subscribed: bool,
            mesh: bool,
            score: Option<f64>,
            lowest: Option<f64>,
        }

        self.look_at_scores();
        let gossipsub = &self.swarm.behaviour().gossipsub;
        let topic = self.topic.hash();
        let protocols: HashMap<_, _> = gossipsub.peer_protocol().collect();
        let topics: HashMap<_, _> = gossipsub.all_peers().collect();
        let peers: BTreeMap<_, _> = self
            .swarm
            .connected_peers()
            .map(|peer| {
                let status = PeerStatus {
                    protocol: protocols
                        .get(peer)
                        .and_then(|kind| protocol_id(kind.as_ref())),
                    subscribed: topics.get(peer).is_some_and(|all| all.contains(&&topic)),
                    mesh: gossipsub.mesh_peers(&topic).any(|other| other == peer),
                    score: gossipsub.peer_score(peer),
                    lowest: self.lowest.get(peer).copied(),
                };
                (peer.to_string(), status)
            })
            .collect();
        let mut status = json!(*self.traffic.lock().expect("no holder panics"));
        status["received"] = json!(self.inbox);
        status["peers"] = json!(peers);
        status
    }

    async fn stop(mut self, question: Question) -> Result<(), Box<dyn Error>> {
        self.swarm.remove_listener(self.listener);
        let peers: Vec<_> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            // An error says that the peer has just gone by itself.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let closed = timeout(CLOSE_TIMEOUT, async {
            while self.swarm.connected_peers().next().is_some() {
                self.swarm.select_next_some().await;
            }
        });
        match closed.await {
            Ok(()) => question.answer(json!({})),
            Err(_) => question.fail("connections did not close in time"),
        }
        Ok(())
    }
}

/// None while the library does not know better: it calls every new peer a floodsub peer.
fn protocol_id(kind: &str) -> Option<String> {
    let version = kind.strip_prefix("Gossipsub v")?;
    Some(format!("/meshsub/{version}.0"))
}
