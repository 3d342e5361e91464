"""What every setting means: one sentence or two for operators, and the unit.

Checked against the types by a test, in both directions. ``topics.NAME`` stands
for any topic.
"""

from typing import NamedTuple


class Field(NamedTuple):
    doc: str
    unit: str = ""  # empty where the value has none


SECTIONS = {
    "network": "Connections to other nodes.",
    "identity": "Who the node is. The key itself is never part of the configuration.",
    "gossip": (
        "The mesh and its timing (libp2p specifications, gossipsub v1.0 to v1.2). Nodes of one "
        "network should agree on these; the defaults are LP-6420's, where it gives one, else "
        "go-libp2p-pubsub's. A heartbeat is the tick at which meshes are mended."
    ),
    "scoring.thresholds": (
        "At which score a peer loses what (gossipsub v1.1, Score Thresholds). "
        "They must fall in this order: graylist ≤ publish ≤ gossip ≤ 0."
    ),
    "topics.NAME": (
        "One table for each topic, with the topic's name in quotes. Topics without a table can "
        "still be used by a program; they have the defaults below (but message_id content where "
        "messages are not signed). Everything here except subscribe must be the same in every "
        "node that uses the topic."
    ),
    "plugins.NAME": (
        "One table for each plugin that has settings. They are the plugin's own and are checked "
        "against the type that it declares; `bruit plugins list` shows which are installed."
    ),
    "plugin_limits": "What is done about a plugin that fails.",
    "log": "What is written to standard error.",
    "shutdown": "What happens on SIGTERM or SIGINT.",
}

FIELDS = {
    "network.listen": Field(
        "Addresses to accept connections on, as multiaddrs. The default is this machine only; "
        "/ip4/0.0.0.0/tcp/4001 opens the port to everybody. An empty list accepts nobody."
    ),
    "network.peers": Field(
        "Peers to connect to at start, as multiaddrs that end in /p2p/ and the peer's id. "
        "A peer that is lost or not there yet is dialled again, at growing intervals."
    ),
    "network.direct_peers": Field(
        "Peers of an explicit agreement, written as in peers: always connected, never part of a "
        "mesh, always sent every message, and not subject to scores. The agreement must be mutual."
    ),
    "network.announce": Field(
        "Addresses told to other nodes instead of those listened on, for a node behind a router "
        "that forwards a port. Empty announces the addresses listened on."
    ),
    "network.max_peers": Field(
        "Connections kept at most; further ones are refused. LP-6420 §1.2.", "peers"
    ),
    "network.min_peers": Field(
        "With fewer connected peers than this, `bruit run` warns. LP-6420 §1.2.", "peers"
    ),
    "identity.key_file": Field(
        "File with the private key, relative to the folder of the configuration file. "
        "It must be readable by its owner only (mode 0600)."
    ),
    "gossip.d": Field("Mesh degree aimed at, for each topic.", "peers"),
    "gossip.d_lo": Field("A mesh with fewer peers than this grafts new ones. At most d.", "peers"),
    "gossip.d_hi": Field(
        "A mesh with this many peers or more is pruned down to d. At least d.",
        "peers",
    ),
    "gossip.d_score": Field(
        "How many of the best-scoring peers survive a prune. At most d_hi.", "peers"
    ),
    "gossip.d_out": Field(
        "Peers that this node dialled itself, kept in every mesh against eclipse. "
        "Below d_lo and below d / 2.",
        "peers",
    ),
    "gossip.d_lazy": Field("Peers outside the mesh told of new messages, at least.", "peers"),
    "gossip.gossip_factor": Field(
        "Share of the peers outside the mesh told of new messages, where that is more than d_lazy.",
        "0 to 1",
    ),
    "gossip.heartbeat_interval": Field("Time between heartbeats.", "seconds"),
    "gossip.heartbeat_delay": Field("Time before the first heartbeat.", "seconds"),
    "gossip.fanout_ttl": Field(
        "How long the peers are remembered to whom a topic was published without subscribing.",
        "seconds",
    ),
    "gossip.history_length": Field("How long a message can be asked for.", "heartbeats"),
    "gossip.history_gossip": Field(
        "How long a message is advertised. At most history_length.", "heartbeats"
    ),
    "gossip.prune_backoff": Field(
        "After a PRUNE, how long neither side may GRAFT the other.", "seconds"
    ),
    "gossip.unsubscribe_backoff": Field("The same after leaving a topic.", "seconds"),
    "gossip.backoff_slack": Field(
        "How much longer than agreed this node itself waits, for clocks that differ.", "seconds"
    ),
    "gossip.graft_flood_threshold": Field(
        "A peer that grafts this soon after a PRUNE is penalised twice.", "seconds"
    ),
    "gossip.peer_exchange": Field(
        "Offer other peers to those pruned, and connect to peers offered by trusted ones."
    ),
    "gossip.exchange_public_only": Field(
        "In peer exchange, hand on a peer's signed addresses only if one of them is public; "
        "without it the peer is merely named."
    ),
    "gossip.flood_publish": Field(
        "Send own messages to every peer of the topic with a sufficient score, not to the mesh "
        "alone: faster and harder to eclipse, for more bandwidth."
    ),
    "gossip.opportunistic_graft_ticks": Field(
        "How often a mesh of low scores is improved.", "heartbeats"
    ),
    "gossip.opportunistic_graft_peers": Field("Peers added each time.", "peers"),
    "gossip.direct_connect_ticks": Field(
        "How often direct peers that are not connected are dialled.", "heartbeats"
    ),
    "gossip.max_ihave_messages": Field(
        "IHAVE announcements taken from one peer per heartbeat.", "announcements"
    ),
    "gossip.max_ihave_length": Field(
        "Message ids asked of one peer per heartbeat, and offered in one IHAVE.", "ids"
    ),
    "gossip.gossip_retransmission": Field(
        "How often one peer is sent the same message that it asks for.", "times"
    ),
    "gossip.iwant_followup": Field(
        "How long a peer may take to send a message asked for before it is penalised.", "seconds"
    ),
    "gossip.idontwant_threshold": Field(
        "A message of at least this size is announced by IDONTWANT as it arrives, so that nobody "
        "sends it again.",
        "bytes",
    ),
    "gossip.max_idontwant_messages": Field(
        "Frames with IDONTWANT taken from one peer per heartbeat.", "frames"
    ),
    "gossip.max_idontwant_length": Field(
        "Message ids taken from one IDONTWANT, and put into one.", "ids"
    ),
    "gossip.idontwant_ttl": Field("How long an IDONTWANT holds.", "heartbeats"),
    "gossip.cache_bytes": Field(
        "Memory for messages kept to answer those who ask for them; the oldest go first.", "bytes"
    ),
    "gossip.seen_ttl": Field("How long a message is known as a duplicate.", "seconds"),
    "gossip.seen_capacity": Field(
        "Message ids remembered to recognise duplicates; the oldest go first.", "ids"
    ),
    "gossip.max_rpc_size": Field(
        "Frames above this size are split. A larger max_message_size of a topic raises it.", "bytes"
    ),
    "gossip.signature_policy": Field(
        "strict-sign: every message carries its author's signature, or is rejected. "
        'strict-no-sign: no message may name an author; needs message_id = "content".'
    ),
    "scoring.thresholds.gossip": Field(
        "Below this score: no IHAVE to the peer, none believed from it.", "score"
    ),
    "scoring.thresholds.publish": Field(
        "Below this score: own messages are not sent to the peer.", "score"
    ),
    "scoring.thresholds.graylist": Field(
        "Below this score: everything from the peer is ignored.", "score"
    ),
    "scoring.thresholds.accept_px": Field(
        "From this score on: peers that it offers are believed, with gossip.peer_exchange.", "score"
    ),
    "scoring.thresholds.opportunistic_graft": Field(
        "A mesh with a median score below this is improved with better peers.", "score"
    ),
    "topics.NAME.subscribe": Field(
        "Join the topic when the node starts. Without it the rest of the table still says how "
        "the topic is used."
    ),
    "topics.NAME.message_id": Field(
        "What makes two messages one. origin: author and sequence number. content: a hash of "
        "topic and data, so that the same data published twice is delivered once."
    ),
    "topics.NAME.max_message_size": Field("Larger messages are rejected unread.", "bytes"),
    "topics.NAME.codec": Field(
        "Plugin that encodes what is published and decodes what arrives, such as zstd. "
        "Empty for none."
    ),
    "topics.NAME.validator": Field(
        "Plugin that judges every message before it is delivered or forwarded, such as bitcoin. "
        "Empty for none."
    ),
    "topics.NAME.max_decoded_size": Field(
        "With a codec: the largest message before it is encoded, and after it is decoded.", "bytes"
    ),
    "plugin_limits.max_failures": Field(
        "Failures in a row of one hook on one topic, after which the plugin is switched off until "
        "the node starts again.",
        "failures",
    ),
    "log.level": Field("Least important records written."),
    "log.format": Field("console for people, json for programs: one object per line."),
    "shutdown.grace": Field(
        "Time to leave the topics and send what is queued, before connections are cut.", "seconds"
    ),
}
