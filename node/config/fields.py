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
    "scoring": (
        "Which peers are trusted: gossipsub v1.1's peer scores. docs/scoring.md explains the "
        "terms and the presets; `bruit scores show` prints what is in force and "
        "`bruit scores lint` says what a peer could get away with."
    ),
    "scoring.thresholds": (
        "At which score a peer loses what (gossipsub v1.1, Score Thresholds). They must fall in "
        "this order: disconnect ≤ graylist ≤ publish ≤ gossip ≤ 0, and graylist ≤ mesh ≤ 0. The "
        "defaults are those of scoring.preset; those shown are lux's (LP-6420 §5.3)."
    ),
    "scoring.peer": (
        "How a peer counts beside its topics (gossipsub v1.1, The Score Function). The defaults "
        "are those of scoring.preset; those shown are lux's. A decay is the share of a counter "
        "that remains after each decay_interval."
    ),
    "scoring.topic": (
        "How a topic counts: every one, but for what its table under scoring.topics says. The "
        "defaults are those of scoring.preset; those shown are lux's."
    ),
    "scoring.topics.NAME": (
        "The settings of scoring.topic for one topic, with its name in quotes. What is left out "
        "is as in scoring.topic, or as the preset has it for this topic."
    ),
    "gater": (
        "Random early drop: while messages come faster than they can be validated, those of peers "
        "that brought little good are dropped before they cost (go-libp2p-pubsub's peer gater)."
    ),
    "topics.NAME": (
        "One table for each topic, with the topic's name in quotes. Topics without a table can "
        "still be used by a program; they have the defaults below (but message_id content where "
        "messages are not signed). Everything here except subscribe must be the same in every "
        "node that uses the topic."
    ),
    "relay": (
        "Relaying blocks in chunks, through clusters. docs/relay.md explains it. Files and folders "
        "are relative to the folder of the configuration file."
    ),
    "relay.params": (
        "What all nodes of a relay network agree on, beside its channels. The Marlin relay "
        "document names these constants and gives them no value: every default is a guess."
    ),
    "relay.channels.NAME": (
        "One table for each channel, under a name of your choice: a kind of block, how it is cut "
        "into chunks, and where the chunks go. Everything here except codec and validator must be "
        "the same in every node of the channel; a codec must undo what the producer's did."
    ),
    "plugins.NAME": (
        "One table for each plugin that has settings. They are the plugin's own and are checked "
        "against the type that it declares; `bruit plugins list` shows which are installed."
    ),
    "plugin_limits": "What is done about a plugin that fails.",
    "control": "How commands such as `bruit peers` ask a running node.",
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
        "Connections kept at most. A quarter more may come; at the next heartbeat the least useful "
        "are hung up on, by mesh membership and messages brought; never those of peers and "
        "direct_peers. LP-6420 §1.2.",
        "peers",
    ),
    "network.min_peers": Field(
        "With fewer connected peers than this, `bruit run` warns. LP-6420 §1.2.", "peers"
    ),
    "network.verifiers": Field(
        "Processes that check signatures beside the node, shared by all nodes of a program and "
        "started when there is first much to check. With 0 they are checked in a thread, which "
        "has to share a processor with everything else.",
        "processes",
    ),
    "identity.key_file": Field(
        "File with the private key, relative to the folder of the configuration file. "
        "It must be readable by its owner only (mode 0600)."
    ),
    "gossip.topic_filter": Field(
        "Topics of peers that are taken note of: names, and patterns in which * stands for any "
        "text. A network whose topics are known should name them, so that nobody can fill the "
        "tables with others. Own topics must be allowed, too."
    ),
    "gater.enabled": Field("Whether to do it at all."),
    "gater.threshold": Field(
        "Messages that found no room, as a share of those validated, from which it begins.", "ratio"
    ),
    "gater.global_decay": Field("Factor on those two counts per interval.", "0 to 1"),
    "gater.source_decay": Field("Factor on the counts of an address per interval.", "0 to 1"),
    "gater.decay_interval": Field("Time between decays.", "seconds"),
    "gater.decay_to_zero": Field("Counts below this become 0.", "0 to 1"),
    "gater.retain_stats": Field(
        "How long an address is remembered after its last peer has left.", "seconds"
    ),
    "gater.quiet": Field("Time with room for every message, after which it ends.", "seconds"),
    "gater.duplicate_weight": Field("What a duplicate counts, where a good message counts 1."),
    "gater.ignore_weight": Field("What a message that is ignored counts."),
    "gater.reject_weight": Field("What a message that is rejected counts."),
    "gater.topic_delivery_weights": Field(
        "What a good message counts, by topic; on topics not named, 1."
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
        "Message ids per heartbeat asked of a peer, answered to it, and offered in one IHAVE.",
        "ids",
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
    "scoring.preset": Field(
        "The set of parameters to start from: lux (LP-6420's thresholds), filecoin, ethereum or "
        "paper2020. Whatever the tables below say wins over it."
    ),
    "scoring.thresholds.gossip": Field(
        "Below this score: no IHAVE to the peer, none believed from it.", "score"
    ),
    "scoring.thresholds.publish": Field(
        "Below this score: own messages are not sent to the peer.", "score"
    ),
    "scoring.thresholds.mesh": Field(
        "Below this score: the peer is taken out of meshes, and its GRAFTs are refused. The "
        "specification has 0; LP-6420 calls this Graylist.",
        "score",
    ),
    "scoring.thresholds.graylist": Field(
        "Below this score: everything from the peer is ignored.", "score"
    ),
    "scoring.thresholds.disconnect": Field(
        "Below this score: the peer is disconnected and its connections are refused. -inf for "
        "never, as in the specification.",
        "score",
    ),
    "scoring.thresholds.accept_px": Field(
        "From this score on: peers that it offers are believed, with gossip.peer_exchange.", "score"
    ),
    "scoring.thresholds.opportunistic_graft": Field(
        "A mesh with a median score below this is improved with better peers.", "score"
    ),
    "scoring.peer.topic_score_cap": Field(
        "The most that all topics together add to a score. 0 for no limit.", "score"
    ),
    "scoring.peer.app_specific_weight": Field(
        "P5: factor on what the plugins of scoring.app_scores say of the peer."
    ),
    "scoring.peer.ip_colocation_factor_weight": Field(
        "P6: factor on the square of how many peers too many share the peer's IP address (or "
        "/64, IPv6). At most 0; 0 for off."
    ),
    "scoring.peer.ip_colocation_factor_threshold": Field(
        "P6: so many peers may share an address.", "peers"
    ),
    "scoring.peer.ip_colocation_factor_whitelist": Field(
        "P6: addresses that any number of peers may share, as CIDR blocks."
    ),
    "scoring.peer.behaviour_penalty_weight": Field(
        "P7: factor on the square of the protocol violations beyond the threshold. At most 0; "
        "0 for off."
    ),
    "scoring.peer.behaviour_penalty_threshold": Field(
        "P7: so many violations are forgiven.", "violations"
    ),
    "scoring.peer.behaviour_penalty_decay": Field("P7: decay of the violations.", "0 to 1"),
    "scoring.peer.slow_peer_weight": Field(
        "Factor on the frames that the peer was too slow to take, beyond the threshold. At most "
        "0; 0 for off."
    ),
    "scoring.peer.slow_peer_threshold": Field("So many such frames are forgiven.", "frames"),
    "scoring.peer.slow_peer_decay": Field("Decay of these frames.", "0 to 1"),
    "scoring.peer.decay_interval": Field("Time between decays. At least 1.", "seconds"),
    "scoring.peer.decay_to_zero": Field("Counters below this become 0.", "0 to 1"),
    "scoring.peer.retain_score": Field(
        "How long the score of a peer that has left is remembered, where it is not positive.",
        "seconds",
    ),
    "scoring.peer.seen_message_ttl": Field(
        "How long it is remembered who has sent a message.", "seconds"
    ),
    "scoring.topic.topic_weight": Field("Factor on everything that the peer does in the topic."),
    "scoring.topic.time_in_mesh_weight": Field(
        "P1: what each quantum in our mesh adds. At least 0; 0 for off."
    ),
    "scoring.topic.time_in_mesh_quantum": Field("P1: the unit of time.", "seconds"),
    "scoring.topic.time_in_mesh_cap": Field("P1: the most that counts.", "quanta"),
    "scoring.topic.first_message_deliveries_weight": Field(
        "P2: what each message adds that the peer was the first to deliver. At least 0; 0 for off."
    ),
    "scoring.topic.first_message_deliveries_decay": Field("P2: decay of their number.", "0 to 1"),
    "scoring.topic.first_message_deliveries_cap": Field("P2: the most that count.", "messages"),
    "scoring.topic.mesh_message_deliveries_weight": Field(
        "P3: factor on the square of how many messages the peer is short of the threshold. At "
        "most 0; 0 for off, as it must be where the rate of the topic is not known."
    ),
    "scoring.topic.mesh_message_deliveries_decay": Field(
        "P3: decay of the messages that the peer delivered as a mesh member, first or nearly so.",
        "0 to 1",
    ),
    "scoring.topic.mesh_message_deliveries_cap": Field(
        "P3: the most that count. At least the threshold.", "messages"
    ),
    "scoring.topic.mesh_message_deliveries_threshold": Field(
        "P3: so many are expected at any time.", "messages"
    ),
    "scoring.topic.mesh_message_deliveries_window": Field(
        "P3: a copy counts this long after the message has proved valid.", "seconds"
    ),
    "scoring.topic.mesh_message_deliveries_activation": Field(
        "P3: time in the mesh before anything is expected. At least 1.", "seconds"
    ),
    "scoring.topic.mesh_failure_penalty_weight": Field(
        "P3b: factor on what the peer was short of (squared) whenever it left the mesh. At most "
        "0; 0 for off."
    ),
    "scoring.topic.mesh_failure_penalty_decay": Field("P3b: decay of that.", "0 to 1"),
    "scoring.topic.invalid_message_deliveries_weight": Field(
        "P4: factor on the square of the invalid messages. At most 0; 0 for off."
    ),
    "scoring.topic.invalid_message_deliveries_decay": Field("P4: decay of their number.", "0 to 1"),
    "scoring.app_scores": Field(
        "Plugins whose judgement of a peer counts in its score (P5), such as stake; what several "
        "say is added up."
    ),
    "scoring.export": Field(
        "File that every minute gets the scores of all known peers, and what they are made of, as "
        "lines of JSON; relative to the folder of the configuration file. Empty for none."
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
    "relay.roles": Field(
        "What the node does: a producer sends blocks, a member of a cluster passes their chunks "
        "on, a consumer rebuilds blocks. Empty for no relay."
    ),
    "relay.key_file": Field(
        "File with the secp256k1 key that signs for producer and member: `bruit relay key new` "
        "makes one. Readable by its owner only (mode 0600). A node with neither role needs none."
    ),
    "relay.marketplace": Field("Plugin that says who may produce, and which clusters there are."),
    "relay.selector": Field("Plugin that chooses the cluster for each chunk of a producer."),
    "relay.audit": Field(
        "SQLite file with what the node witnessed, acknowledged, broadcast, disputed and "
        "delivered. Empty for none; a producer must then not start again within "
        "relay.params.refresh_interval, as it would not know what stake is in use."
    ),
    "relay.retention": Field("How long the audit keeps a row.", "seconds"),
    "relay.audit_size": Field(
        "Size of the audit beyond which its oldest rows go, however young.", "bytes"
    ),
    "relay.disputes": Field("Folder for evidence: a JSON file for each dispute."),
    "relay.proofs": Field("Folder for proofs of broadcast: a JSON file for each broadcast."),
    "relay.params.cluster_options": Field(
        "NO_OF_CLUSTER_OPTIONS: clusters that a chunk may go through.", "clusters"
    ),
    "relay.params.chunks_per_peer": Field(
        "CHUNKS_PER_PEER: chunks that one peer may have under way with another; further ones are "
        "dropped.",
        "chunks",
    ),
    "relay.params.chunk_report_limit": Field(
        "CHUNK_REPORT_LIMIT: the most chunks in one dispute. At least min_chunks of every channel.",
        "chunks",
    ),
    "relay.params.tolerable_latency": Field(
        "TOLERABLE_LATENCY: an older chunk is a replay and is dropped; one from further in the "
        "future is not waited for. Clocks must agree better than this.",
        "seconds",
    ),
    "relay.params.stake_per_byte": Field(
        "STAKE_PER_BYTE: stake that a byte of chunk or attestation occupies.", "tokens"
    ),
    "relay.params.refresh_interval": Field(
        "After which the same stake may back another message. At least tolerable_latency.",
        "seconds",
    ),
    "relay.params.chunk_expiry": Field(
        "From the first chunk of a message until it is disputed that too few have come.", "seconds"
    ),
    "relay.params.acknowledgement_timeout": Field(
        "After the last acknowledgement of a broadcast, until chunks that have none are sent "
        "through another cluster. Below tolerable_latency.",
        "seconds",
    ),
    "relay.channels.NAME.id": Field(
        "The channel's number, which every chunk carries. No two channels share one."
    ),
    "relay.channels.NAME.topic": Field(
        "The gossipsub topic that brings chunks to consumers. It belongs to this channel alone, "
        "and needs no table under topics but to set its max_message_size."
    ),
    "relay.channels.NAME.min_chunks": Field(
        "MIN_CHUNKS: any so many chunks give the block back. At most num_chunks.", "chunks"
    ),
    "relay.channels.NAME.num_chunks": Field(
        "NUM_CHUNKS: chunks that a block is cut into.", "chunks"
    ),
    "relay.channels.NAME.coding": Field(
        "The erasure code. systematic is the fastest; ida is Rabin's, as in the document; mod257 "
        "and mod65537 are the document's arithmetic."
    ),
    "relay.channels.NAME.attesting": Field(
        "What a producer signs. chunk: every chunk, as in the document. merkle: once, the root of "
        "a tree over all chunks."
    ),
    "relay.channels.NAME.max_block": Field(
        "The largest block, after its codec. A frame with a chunk of it must fit the topic's "
        "max_message_size.",
        "bytes",
    ),
    "relay.channels.NAME.codec": Field(
        "Plugin that packs a block before it is cut and unpacks it when rebuilt, such as zstd. "
        "Empty for none."
    ),
    "relay.channels.NAME.validator": Field(
        "Plugin that judges a block before it is delivered, such as bitcoin. Empty for none: then "
        "every block that can be rebuilt and has the right hash is delivered."
    ),
    "relay.channels.NAME.max_decoded_size": Field(
        "With a codec: the largest block before it is packed, and after it is unpacked.", "bytes"
    ),
    "plugin_limits.max_failures": Field(
        "Failures in a row of one hook on one topic, after which the plugin is switched off until "
        "the node starts again.",
        "failures",
    ),
    "control.socket": Field(
        "Unix socket for commands, relative to the folder of the configuration file; only the "
        "node's user can use it. Nodes of one folder need sockets of different names. Empty for "
        "none."
    ),
    "log.level": Field("Least important records written."),
    "log.format": Field("console for people, json for programs: one object per line."),
    "shutdown.grace": Field(
        "Time to leave the topics and send what is queued, before connections are cut.", "seconds"
    ),
}
