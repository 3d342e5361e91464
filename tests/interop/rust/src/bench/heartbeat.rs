//! How long heartbeats take.
//!
//! The library's own histogram of them (its feature "metrics") is in whole milliseconds, cut off,
//! and so shows most of them as 0. Here the call that runs a heartbeat is timed instead: the
//! library's behaviour beats in `poll`, after its last queued event, when its timer has fired, and
//! without scores that timer is the only thing to which it hands the waker it is polled with. So the
//! first poll without an event after that waker was woken is a heartbeat, and next to nothing else.
//! Cargo.toml pins the library's version, so that this cannot change unnoticed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use futures::task::AtomicWaker;
use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    gossipsub,
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm,
    },
};

#[derive(Clone, Default)]
pub struct Durations(Arc<Mutex<Vec<Duration>>>);

impl Durations {
    /// Seconds; what was taken once is not given again.
    pub fn take(&self) -> Vec<f64> {
        let mut durations = self.0.lock().expect("no holder panics");
        durations
            .drain(..)
            .map(|duration| duration.as_secs_f64())
            .collect()
    }

    fn add(&self, duration: Duration) {
        self.0.lock().expect("no holder panics").push(duration);
    }
}

/// The library's behaviour, with its heartbeats timed.
pub struct Timed {
    pub inner: gossipsub::Behaviour,
    timer: Arc<Timer>,
    /// Wakes `timer`.
    waker: Waker,
    durations: Option<Durations>,
}

#[derive(Default)]
struct Timer {
    fired: AtomicBool,
    swarm: AtomicWaker,
}

impl Wake for Timer {
    fn wake(self: Arc<Self>) {
        self.fired.store(true, Ordering::SeqCst);
        self.swarm.wake();
    }
}

impl Timed {
    /// `durations`: where they go, if they are to be taken.
    pub fn new(inner: gossipsub::Behaviour, durations: Option<Durations>) -> Self {
        let timer = Arc::<Timer>::default();
        Self {
            inner,
            waker: timer.clone().into(),
            timer,
            durations,
        }
    }
}

impl NetworkBehaviour for Timed {
    type ConnectionHandler = <gossipsub::Behaviour as NetworkBehaviour>::ConnectionHandler;
    type ToSwarm = gossipsub::Event;

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.timer.swarm.register(cx.waker());
        let fired = self.timer.fired.swap(false, Ordering::SeqCst);
        let start = Instant::now();
        let polled = self.inner.poll(&mut Context::from_waker(&self.waker));
        if fired && polled.is_pending() {
            if let Some(durations) = &self.durations {
                durations.add(start.elapsed());
            }
            // After a heartbeat the library does not poll its timer for the next one, which a swarm
            // that nothing else wakes then never has.
            cx.waker().wake_by_ref();
        } else if fired {
            // An event came first.
            self.timer.fired.store(true, Ordering::SeqCst);
        }
        polled
    }

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.inner
            .handle_pending_inbound_connection(id, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner
            .handle_established_inbound_connection(id, peer, local, remote)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.inner
            .handle_pending_outbound_connection(id, peer, addresses, role)
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port_use: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner
            .handle_established_outbound_connection(id, peer, address, role, port_use)
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        self.inner.on_connection_handler_event(peer, id, event);
    }
}
