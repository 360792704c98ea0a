# SPDX-License-Identifier: Apache-2.0
"""Plans, predicts and simulates distributed training.

Each function takes the flags of the command of its name as keyword arguments and returns what the command prints
with --json, as a dict; times are in seconds, memory in bytes (the keys say so).

    >>> import orrery
    >>> best = orrery.plan("bert-1.5b", nodes=32)["ranked"][0]
    >>> best["step_time_s"], best["layout"]["dp"]

Flags: --global-batch is global_batch, --from is from_. True switches a flag on, False off, None leaves it out; lists
stand for several values. help(orrery.plan) ends with all flags.
"""

import json as _json
import os as _os
from typing import Any, Sequence, Union

from . import _orrery
from ._orrery import InputError

Value = Union[str, int, float, bool, "_os.PathLike[str]"]
Flag = Union[Value, Sequence[Value], None]
Model = Union[str, "_os.PathLike[str]"]

__all__ = ["plan", "predict", "simulate", "validate", "provision", "names", "InputError"]


def _text(value: Value) -> str:
    return _os.fspath(value) if isinstance(value, _os.PathLike) else str(value)


# About a terminal, or answered by a text.
_NOT_HERE = {
    "--json": "the answer is what --json prints; there is no json=",
    "--help": "help= is for a terminal: help(orrery.plan) ends with all flags",
    "--quiet": "quiet= is for a terminal: a function returns the whole answer",
    "--color": "color= is for a terminal: a function returns no text",
    "--offer-template": "offer_template= prints a file to start from: `plan provision --offer-template`",
}


def _words(command: str, flags: "dict[str, Flag]") -> "list[str]":
    known = _orrery.flags(command)
    words = []
    for key, value in flags.items():
        name = "--" + key.rstrip("_").replace("_", "-")
        if name in _NOT_HERE:
            raise TypeError(_NOT_HERE[name])
        shape, several = known.get(name, ("", False))
        if value is None:
            continue
        if isinstance(value, bool):
            if "on|off" in shape:
                words += [name, "on" if value else "off"]
            elif value:
                words.append(name)
        elif isinstance(value, (str, int, float, _os.PathLike)):
            words += [name, _text(value)]
        elif several:
            for each in value:
                words += [name, _text(each)]
        else:
            words += [name, ",".join(map(_text, value))]
    return words


def _answer(command: str, positional: "list[str]", flags: "dict[str, Flag]") -> "dict[str, Any]":
    return _json.loads(_orrery.answer(command, positional + _words(command, flags)))


def plan(model: Model, **flags: Flag) -> "dict[str, Any]":
    """Ranks the layouts of a training job on a cluster: the document orrery.plan/1.

    model: a name of names("models"), a YAML file or a HuggingFace config.json. Where nothing fits, the document says
    so. Raises InputError: wrong input, with a hint.
    """
    return _answer("", [], {"model": model, **flags})


def predict(model: Model = None, **flags: Flag) -> "dict[str, Any]":
    """Step time, memory and breakdown of one given layout: the document orrery.predict/1.

    model: as in plan(); may be left out where from_= names files of other programs. Raises InputError.
    """
    return _answer("predict", [], {"model": model, **flags})


def simulate(model: Model = None, **flags: Flag) -> "dict[str, Any]":
    """One step of one given layout, simulated op by op: the document orrery.simulate/1.

    model: as in plan(); may be left out with plan= or scenario=. Without SimGrid: network="fluid", the default.
    Raises InputError.
    """
    return _answer("simulate", [], {"model": model, **flags})


def validate(runs: "Union[str, _os.PathLike[str]]", **flags: Flag) -> "dict[str, Any]":
    """How far predictions are from a CSV of measured runs: the document orrery.validate/1. Raises InputError."""
    return _answer("validate", [_os.fspath(runs)], flags)


def provision(model: Model, **flags: Flag) -> "dict[str, Any]":
    """Which machines to rent, days against dollars: the document orrery.provision/1. Raises InputError."""
    return _answer("provision", [], {"model": model, **flags})


def names(kind: str) -> "list[str]":
    """Names of a catalogue: "models", "topologies", "gpus", "frameworks" or "offers". Raises InputError."""
    return _orrery.names(kind)


for _function, _command in ((plan, ""), (predict, "predict"), (simulate, "simulate"), (validate, "validate"),
                            (provision, "provision")):
    _function.__doc__ += "\n    The command's help:\n\n" + _orrery.help(_command)
