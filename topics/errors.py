"""The four faults, each with an owner.

Every message says what happened, to which value, and what to do. None of
these is raised half-way through a change: the state is as it was before the
call, unless the docstring of the raiser says otherwise.
"""


class BruitError(Exception):
    """Root of every error that bruit raises on purpose."""


class LocalError(BruitError):
    """The caller asked for something impossible. State unchanged."""


class RemoteError(BruitError):
    """A peer sent something it must not. The input is dropped; the score may feel it."""


class PluginError(BruitError):
    """A plugin raised, or could not be loaded. The node stays up.

    Attributes: ``plugin`` (its configured name) and ``hook`` (the hook that
    failed, ``"load"`` when it never got that far).
    """

    def __init__(self, plugin: str, hook: str, problem: str) -> None:
        super().__init__(f"plugin {plugin!r} failed in {hook}: {problem}")
        self.plugin = plugin
        self.hook = hook


class ConfigError(BruitError):
    """A configuration value is wrong. Nothing was started.

    ``path`` is the dotted place of the value, such as ``gossip.d_lo``.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
