"""Write src/lanner/activex/interfaces.txt, the interfaces of MC-MQAC.

The source is tools/data/mqac_interfaces.json, which was transcribed from the IDL of the document
(section 6) and its tables. Where the two contradict each other the IDL is followed, and
"discrepancies" in the data lists the places. Run it without arguments; a test compares its output
with the file.

The IDL derives few of its interfaces: most revisions (IMSMQQueue2) repeat the members of the
previous one (IMSMQQueue). The file does not repeat them: an interface names its predecessor, and
lists only the members that differ from the predecessor's. `lanner.activex.tables` describes the
format.
"""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import Any

from lanner.com.known_classes import CLASSES, EVENTS

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tools" / "data" / "mqac_interfaces.json"
TABLES = ROOT / "src" / "lanner" / "activex" / "interfaces.txt"

# MS-OAUT 2.2.32.1: DISPID_VALUE and DISPID_NEWENUM.
WELL_KNOWN = {"Item": 0, "_NewEnum": -4}
# Where the IDL gives no id: the first number that MIDL assigns, and what it adds for each interface
# in between.
FIRST_DISPID = 0x6002_0000
DISPID_STEP = 0x1_0000

# Interfaces that lanner.com declares: COM's own interfaces, which the document's IDL repeats, and
# the event interfaces that its client needs.
COM_INTERFACES = {
    "IConnectionPoint",
    "IConnectionPointContainer",
    "IEnumConnectionPoints",
    "IEnumConnections",
    *(table.name for table in EVENTS.values()),
}
# The interfaces that every other one derives from.
ROOTS = ("IDispatch", "IUnknown")

# Names whose capital letters do not mark the beginnings of words.
WORDS = {"ADsPath": "AdsPath", "IADs": "Iads", "_NewEnum": "NewEnum"}
PREFIXES = {"method": "", "propget": "get_", "propput": "put_", "propputref": "putref_"}


def snake(name: str) -> str:
    """Convert an IDL name to snake_case: PathNameDNS becomes path_name_dns."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", WORDS.get(name, name))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def python_name(kind: str, name: str) -> str:
    # The IDL declares _NewEnum as a method, automation as a property.
    made = "get_new_enum" if name == "_NewEnum" else PREFIXES[kind] + snake(name)
    return f"{made}_" if keyword.iskeyword(made) else made


def dispids(interface: dict[str, Any]) -> dict[str, int]:
    """Return the DISPID of each name.

    It is the document's if it has one. Otherwise names are counted separately for each interface of
    the chain.
    """
    # Level 0 is the first dual interface, directly below IDispatch.
    chain = [interface["name"], *interface["base_chain"]][:-1][::-1]
    counts = dict.fromkeys(chain, 0)
    found: dict[str, int] = {}
    for method in interface["methods"]:
        name, owner = method["name"], method["declared_in"]
        if name in found:
            continue
        if method["dispid"] is not None:
            found[name] = method["dispid"]
            continue
        found[name] = WELL_KNOWN.get(name, FIRST_DISPID + DISPID_STEP * chain.index(owner) + counts[owner])
        counts[owner] += 1
    return found


def parameter(data: dict[str, Any]) -> str:
    return ":".join(
        [data["dir"], data["type"], data["name"], *(flag for flag in ("optional", "retval") if data.get(flag))]
    )


def member(data: dict[str, Any], dispid: int) -> str:
    number = f"{dispid:d}" if -10 < dispid < 10 else f"{dispid:#x}"
    kind, name = data["kind"], data["name"]
    return " ".join([f"{data['opnum']}", number, kind, name, python_name(kind, name), *map(parameter, data["params"])])


def members(interface: dict[str, Any]) -> list[str]:
    # Only interfaces derived from IDispatch have DISPIDs.
    numbers = dispids(interface) if interface["base"] != "IUnknown" else {}
    return [member(each, numbers.get(each["name"], -1)) for each in interface["methods"]]


def predecessor(interface: dict[str, Any]) -> str:
    """Return the name of the interface whose members this one begins with.

    That is its base or its previous revision; empty if there is none.
    """
    if interface["base"] not in ROOTS:
        return str(interface["base"])
    stem, number = re.fullmatch(r"(\w*?)(\d?)", interface["name"]).groups()  # type: ignore[union-attr] # it matches every name
    if not number:
        return ""
    return str(stem) if number == "2" else f"{stem}{int(number) - 1}"


def interface_lines(interface: dict[str, Any], earlier: dict[str, list[str]]) -> list[str]:
    """Return the line of an interface, and those of members that differ from its predecessor's."""
    before = predecessor(interface)
    inherited, own = earlier[before] if before else [], earlier[interface["name"]]
    if len(own) < len(inherited):
        raise ValueError(f"{interface['name']} has fewer members than {before}")
    marks = [f"like:{before}"] if before and before != interface["base"] else []
    marks += ["dual"] if interface["dual"] else []
    marks += ["local"] if interface.get("remote") is False else []
    first = " ".join(["interface", interface["name"], interface["iid"], interface["base"], *marks])
    return [first, *(line for line in own if line not in inherited)]


def coclass_line(data: dict[str, Any]) -> str:
    if str(CLASSES[f"MSMQ.{data['name']}"]) != data["clsid"]:
        raise ValueError(f"lanner.com.known_classes has another CLSID for {data['name']}")
    # IDispatch exposes the default interface, which is the last one of an object here.
    ordered = [name for name in data["interfaces"] if name != data["default_interface"]] + [data["default_interface"]]
    return " ".join(["coclass", data["name"], *ordered, *(f"source:{name}" for name in data["source_interfaces"])])


def make() -> str:
    """Return the text of the file."""
    data = json.loads(DATA.read_text())
    lines = ["# MC-MQAC section 6. Written by tools/make_activex_tables.py; do not edit."]
    written: dict[str, list[str]] = {}
    for interface in data["interfaces"]:
        if interface["name"] not in COM_INTERFACES:
            written[interface["name"]] = members(interface)
            lines += interface_lines(interface, written)
    lines += map(coclass_line, data["coclasses"])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLES.write_text(make())
