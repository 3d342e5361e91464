"""``bruit relay verify-evidence`` and ``verify-proof``: checks that need no node."""

from __future__ import annotations  # what the types below are from is heavy to import

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from bruit.node.cli.options import Flags, config_options

if TYPE_CHECKING:
    from bruit.node.config import Loaded
    from bruit.node.relay.evidence import Evidence
    from bruit.node.relay.evidence_check import Judge, Restore
    from bruit.node.relay.finding import Finding
    from bruit.plugins.marketplace import Marketplace
    from bruit.plugins.pipeline import TopicPipeline

Result = TypeVar("Result")

NO_CODEC = "none"  # in place of a plugin's name: blocks are cut as they are

MARKETPLACE = click.option(
    "--marketplace",
    "marketplace_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The marketplace as it was at the time, as for the plugin marketplace-file.",
)
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object: holds, and statements."
)
_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.command("verify-evidence")
@_FILE
@MARKETPLACE
@config_options
@click.option(
    "--codec",
    metavar="PLUGIN",
    help="The channel's codec, or none, for a block that is said to be invalid. -c says it, too.",
)
@_JSON
def verify_evidence_file(
    file: Path,
    marketplace_file: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    codec: str | None,
    as_json: bool,
) -> None:
    """Check the evidence in FILE, from its bytes alone, and say what it shows.

    All signatures are recovered and blocks rebuilt; nothing that the file says of itself
    is believed. With -c, evidence that goes by other channels or parameters than that
    configuration does not hold, and an invalid block is judged by the channel's plugins with
    their settings there. Without -c the plugin that the evidence names judges, where it is
    installed and --codec says how to unpack the block.

    The exit code is 0 if it holds, 1 if it does not, 2 for a file that is no evidence.

    \b
    Examples:
      bruit relay verify-evidence disputes/20260102T030405.000000Z-overspent-stake-1a2b3c4d.json
      bruit relay verify-evidence FILE --marketplace marketplace.toml -c bob/bruit.toml --json
    """
    from bruit.node.relay.evidence import MAX_FILE, decode_evidence
    from bruit.node.relay.evidence_check import verify_evidence

    evidence = _decoded(file, MAX_FILE, decode_evidence)
    flags = Flags(config_file, assignments)
    loaded = flags.load() if config_file or assignments else None
    judge, restore, note = _plugins(evidence, loaded, codec)
    finding = verify_evidence(
        evidence,
        read_marketplace_file(marketplace_file),
        judge,
        restore=restore,
        channels=loaded.config.relay.channel_params() if loaded else None,
        params=loaded.config.relay.params if loaded else None,
    )
    told = {"kind": evidence.kind.value, "reason": evidence.reason}
    print_finding(finding, as_json, [note] if note else [], **told)


@click.command("verify-proof")
@_FILE
@MARKETPLACE
@_JSON
def verify_proof_file(file: Path, marketplace_file: Path | None, as_json: bool) -> None:
    """Check the proof of broadcast in FILE, from its bytes alone, and say what it shows.

    It holds if nothing in it is false; how many chunks were acknowledged is said either way.
    Whether those who signed were members of the clusters they name can only be said with
    --marketplace.

    The exit code is 0 if it holds, 1 if it does not, 2 for a file that is no proof.

    \b
    Example:
      bruit relay verify-proof proofs/20260102T030405.000000Z-proof-1a2b3c4d.json
    """
    from bruit.node.relay.proof import MAX_PROOF, decode_proof, verify_proof

    proof = _decoded(file, MAX_PROOF, decode_proof)
    print_finding(verify_proof(proof, read_marketplace_file(marketplace_file)), as_json, [])


def read_marketplace_file(file: Path | None) -> Marketplace | None:
    """Ends the command with exit code 2 where it cannot be used."""
    from bruit.plugins.marketplace_file import read_marketplace

    return None if file is None else _usable(lambda: read_marketplace(file))


def print_finding(finding: Finding, as_json: bool, notes: list[str], **told: str) -> None:
    """Print, and end with exit code 1 where it does not hold."""
    from bruit.node.relay.evidence import plain

    statements = [*notes, *finding.statements]
    if as_json:
        click.echo(json.dumps({"holds": finding.holds, **told, "statements": statements}, indent=2))
    else:
        click.echo("it holds" if finding.holds else "it does not hold")
        for name, text in told.items():
            click.echo(f"{name}: {plain(text)}")
        for statement in statements:
            click.echo(f"- {plain(statement)}")
    if not finding.holds:
        click.get_current_context().exit(1)


def _decoded(file: Path, limit: int, decode: Callable[[bytes], Result]) -> Result:
    from bruit.node.cli import WrongConfiguration

    try:
        with file.open("rb") as opened:
            data = opened.read(limit + 1)
    except OSError as problem:
        raise WrongConfiguration(f"{file} cannot be read: {problem.strerror}") from None
    return _usable(lambda: decode(data), f"{file}: ")


def _usable(read: Callable[[], Result], where: str = "") -> Result:
    from bruit.node.cli import WrongConfiguration
    from bruit.topics.errors import LocalError

    try:
        return read()
    except LocalError as problem:
        raise WrongConfiguration(f"{where}{problem}") from None


def _plugins(
    evidence: Evidence, loaded: Loaded | None, codec: str | None
) -> tuple[Judge | None, Restore | None, str]:
    """Validator and post-processing of the channel, as far as they are known, and a remark.

    A block that is not unpacked as the channel unpacks it would look invalid: where the codec is
    not known, nobody judges.
    """
    from bruit.node.config import NodeConfig
    from bruit.node.relay.evidence import Kind
    from bruit.node.relay.params import MAX_BLOCK
    from bruit.plugins.registry import PluginRegistry
    from bruit.topics.errors import ConfigError

    if evidence.kind is not Kind.INVALID_BLOCK:
        return None, None, ""
    config = NodeConfig() if loaded is None else loaded.config
    channels = {channel.id: channel for channel in config.relay.channels.values()}
    channel = channels.get(evidence.channel.id)
    validator = evidence.validator
    note = f"The validator {validator!r} is the one that the evidence names." if validator else ""
    if channel is not None:
        validator, codec, note = channel.validator, codec or channel.codec, ""
    if codec is None:
        return None, None, "How the channel packs blocks is not known: give -c or --codec."
    topic = evidence.channel.topic
    size = channel.max_decoded_size if channel else MAX_BLOCK
    registry = PluginRegistry.discover(config.plugins)
    unpacking = registry.topic_pipeline(
        topic, codec="" if codec == NO_CODEC else codec, max_size=size
    )
    try:
        judging = registry.topic_pipeline(topic, validator=validator, max_size=size)
    except ConfigError as problem:
        return None, _restore(unpacking), f"There is no judge: {problem}"
    return judging.check if validator else None, _restore(unpacking), note


def _restore(unpacking: TopicPipeline) -> Restore:
    """The post-processing of a channel, from a pipeline with its codec alone."""
    from bruit.topics.errors import PluginError, RemoteError
    from bruit.topics.validation import Verdict

    def restore(payload: bytes) -> bytes:
        validation, block = unpacking.judge(payload)
        if validation.verdict is Verdict.REJECT:
            raise RemoteError(validation.reason)
        if validation.verdict is Verdict.IGNORE:
            raise PluginError("codec", "post_process", validation.reason)
        return block

    return restore
