"""One text: secrets, names of people and machines, and folders taken out of it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from profkit.access_keys import tokens_in
from profkit.errors import ReadError
from profkit.secrets import SECRET_WORD

__all__ = ["HIDDEN", "NAMES", "Scrubber", "kept_variable"]

HIDDEN: Final = "***"
_MOST: Final = 256
NAMES: Final = "names and other words"
"""What is counted as removed under these words."""
_PATH: Final = re.compile(
    r"(?<![\w.\])/\\-])(?:[A-Za-z]:)?[\\/]{1,2}(?:[^\s\\/:;,'\"()<>|*?]{1,255}[\\/]){1,64}[^\s\\/:;,'\"()<>|*?]{0,255}"
)
_ADDRESS: Final = re.compile(r"\b([a-z][a-z0-9+.-]{1,31})://[^\s'\"<>]{1,2048}", re.IGNORECASE)
_HOME: Final = re.compile(r"[\\/](?:home|Users)[\\/]([^\s\\/:;,'\"()<>|*?]{1,64})")
_VARIABLE: Final = re.compile(
    r"(?<!\w)([A-Z][A-Z0-9_]{2,63})=(\"[^\"]{0,65536}\"|'[^']{0,65536}'|[^;\s\"]{0,65536})"
)
_PERSONAL: Final = re.compile(
    r"(?:^|(?<!_TO)(?<!\bTO)(?<!_FROM)(?<!\bFROM)_)(?:USER|LOGNAME|USERNAME|HOST|HOSTNAME|MAIL|EMAIL)$|^(?:user|host)_?name$",
    re.IGNORECASE,
)
"""Not a direction, as of ``DEVICE_TO_HOST=size``."""
_NAME: Final = re.compile(r"[\w.-]{3,64}")
_SECRET_NAME: Final = r"(?:passw(?:or)?d|passphrase|secret|credential|(?:api|access|private)[_-]?key|(?:auth|access)[_-]?token|authorization|cookie)"
_VALUE: Final = r"(?:\"[^\"]{1,256}\"|'[^']{1,256}'|[^\s,;&\"'<>]{1,256})"
_PAIR: Final = re.compile(
    rf"({_SECRET_NAME}[\w-]{{0,16}}[\"']?\s{{0,2}}[:=]\s{{0,2}}(?:Bearer\s|Basic\s)?)(?!:)({_VALUE})",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(
    rf"(?<![\w-])(--?[\w-]{{0,32}}{_SECRET_NAME}[\w-]{{0,16}}\s)(?!-)({_VALUE})"
    r"|(?<![\w-])(--?[\w-]{0,32}(?<![a-z])(?:token|key)\s)((?=[^\s\d]{0,255}\d)(?=[^\sA-Za-z]{0,255}[A-Za-z])[\w.+/=-]{8,256})",
    re.IGNORECASE,
)
"""An option and its value. Other tokens and keys than passwords are drawn: of letters and digits."""
_SECRET_KEY: Final = re.compile(rf"[\w-]{{0,48}}{_SECRET_NAME}[\w-]{{0,16}}", re.IGNORECASE)
_PERSON: Final = re.compile(
    r"(?<![\w-])(--user(?:name)?\s|(?:user|host)_?name[\"']?\s{0,2}[:=]\s{0,2}[\"']?)(?!-)([\w.-]{3,64})",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(r"[\"'](\w{3,64})[\"']\s{0,2}:\s{0,2}[\"']([^\"']{1,256})[\"']")
"""An entry of a dictionary that stands in a text, as JSON or as Python shows it."""
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^-]{0,16384}+(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?"
)
_TRACE_NAME: Final = re.compile(r"(?<![\w.-])([\w.-]{3,64}?)_\d{1,8}\.\d{10,20}\.pt\.trace\.json")
"""How torch names the file of a trace: the machine, the process, the time."""
_SHORT_SECRET: Final = re.compile(r"(?![A-Za-z]{1,4}\d{1,3}$)(?=.{0,6}[A-Za-z])(?=.{0,6}\d)[^\s,;&]{4,7}")
"""Letters and digits, unlike names of types and machines (``bf16``, ``rank3``): it may stand elsewhere as a word."""
_IDENTIFIER: Final = re.compile(
    r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])"
)
_MAIL: Final = re.compile(r"[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}(?!so\b)[A-Za-z]{2,24}(?![\w.])")
"""A mail address; not a symbol of a library, such as ``memcpy@libc.so``."""
_PRIVATE_NETWORK: Final = re.compile(
    r"(?<![\w.])(?:10\.\d{1,3}|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}(?![\w.])"
)
_ANONYMOUS: Final = "00000000-0000-0000-"
_EVERYBODY: Final = frozenset(
    {
        "root",
        "user",
        "users",
        "ubuntu",
        "runner",
        "localhost",
        "home",
        "node",
        "host",
        "admin",
        "python",
        "none",
        "true",
        "false",
        "null",
        "auto",
        "default",
    }
)
"""Names that tell nobody, and that occur as words."""
_KEPT_VARIABLES: Final = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS"}
)  # fmt: skip
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9_]{2,63}")
_PRIVATE: Final = frozenset(
    {"user", "username", "user_name", "host", "hostname", "host_name", "cmdline", "command", "command_line", "argv", "cwd", "home", "home_dir"}
)  # fmt: skip
_LOGS: Final = frozenset({"ERROR", "INFO", "STAGE", "VERBOSE", "WARNING"})
"""Lists of messages in a trace of Kineto, by their level."""
_PACKAGES: Final = re.compile(r"(?:site|dist)-packages|python3\.\d+|torch|profkit|apex|bitsandbytes|triton")
"""Folders from which on a path says whose code it is: an analysis tells libraries from the program by them."""
_INDUCTOR: Final = re.compile(r"torchinductor_\w+")


def is_private_name(name: str) -> bool:
    """Whether the value of this name is hidden whole: a variable of the environment, a person, a machine, a secret."""
    if name.lower() in _PRIVATE or _SECRET_KEY.fullmatch(name):
        return True
    return _ENVIRONMENT.fullmatch(name) is not None and name not in _LOGS and not kept_variable(name)


def is_option_of_secret(text: str) -> bool:
    """Whether what follows in a list is secret: an option such as ``--password``, or a variable such as ``DB_PASSWORD``."""
    if text.startswith("-"):
        return _SECRET_KEY.fullmatch(text.lstrip("-")) is not None or text in ("--user", "--username")
    return _ENVIRONMENT.fullmatch(text) is not None and bool(
        _PERSONAL.search(text) or _SECRET_KEY.search(text)
    )


def kept_variable(name: str) -> bool:
    """Whether a variable of the environment says only which rank a process is."""
    return name in _KEPT_VARIABLES


@dataclass
class Scrubber:
    """What is taken out of texts, and how often it was."""

    name: str = ""
    """The file's, for messages."""
    words: set[str] = field(default_factory=set)
    """Names of people and machines, and short secrets; `learn` finds them in the files."""
    secrets: set[str] = field(default_factory=set)
    """Texts that stood in hidden places, and must stand nowhere else."""
    removed: Counter[str] = field(default_factory=Counter)
    """How many were removed, by what they were."""
    _known: dict[str, str] = field(default_factory=dict)

    def learn(self, texts: Iterable[str]) -> None:
        """Find the names of people and machines: owners of home folders, and values of USER, HOSTNAME and the like."""
        for text in texts:
            for found in _HOME.finditer(text):
                self._learn_name(found[1])
            for name in _TRACE_NAME.finditer(text):
                self._learn_name(name[1])
            for variable in (*_VARIABLE.finditer(text), *_ENTRY.finditer(text)):
                self.learn_pair(variable[1], variable[2].strip("\"'"))
            for person in _PERSON.finditer(text):
                self._learn_name(person[2])
        self._known.clear()

    def learn_pair(self, name: str, value: str) -> None:
        """A name and its value, as of a variable: a personal one is a name from now on, a secret one a secret."""
        if _PERSONAL.search(name):
            self._learn_name(value)
            self._learn_name(value.partition(".")[0])
        elif SECRET_WORD.search(name) and len(value) >= 8:
            self._add(self.secrets, value)
        elif SECRET_WORD.search(name) and _SHORT_SECRET.fullmatch(value):
            self._add(self.words, value)

    def _learn_name(self, name: str) -> None:
        if _NAME.fullmatch(name) and name.lower() not in _EVERYBODY and not name.isdecimal():
            self._add(self.words, name)

    def add_secret(self, text: str) -> None:
        """A text that must stand nowhere else."""
        self._add(self.secrets, text)

    def _add(self, known: set[str], text: str) -> None:
        """Each is looked for in every text, so that their number is bounded.

        Raises:
            ReadError: There are more than any program has.
        """
        known.add(text)
        if len(known) > _MOST:
            problem = f"it holds more than {_MOST} names of people and machines, or secrets"
            raise ReadError(self.name, problem, "It is damaged, or made to be slow: do not share it")

    def __call__(self, text: str) -> str:
        """The text without what is to be hidden."""
        if text not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[text] = self._scrubbed(text)
        return self._known[text]

    def bytes(self, data: bytes) -> bytes:
        """Bytes that may hold text, without what is to be hidden."""
        text = data.decode("latin-1")
        made = self(text)
        return data if made == text else made.encode("latin-1", "replace")

    def _scrubbed(self, text: str) -> str:
        for token in {found.decode() for found in tokens_in(text.encode("utf-8", "replace"))}:
            self._add(self.secrets, token)
            text = self._without(text, token, "keys")
        for secret in self.secrets:
            text = self._without(text, secret, "secrets")
        text = _ENTRY.sub(self._entry, text) if ":" in text else text
        text = _VARIABLE.sub(self._variable, text) if "=" in text else text
        text = _PAIR.sub(self._pair, text) if "=" in text or ":" in text else text
        text = _OPTION.sub(self._option, text) if "-" in text else text
        text = _PRIVATE_KEY.sub(self._private_key, text) if "-----BEGIN" in text else text
        text = _IDENTIFIER.sub(self._identifier, text) if "-" in text else text
        text = _ADDRESS.sub(self._address, text) if "://" in text else text
        for pattern in (_MAIL, _PRIVATE_NETWORK):
            text, count = pattern.subn(HIDDEN, text)
            self.removed["addresses"] += count
        text = _PATH.sub(self._path, text) if "/" in text or "\\" in text else text
        for word in self.words:
            if word in text:
                text, count = re.subn(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", HIDDEN, text)
                self.removed[NAMES] += count
        return text

    def hide(self, value: str, what: str) -> str:
        """A whole value, as of a variable of the environment."""
        if value and value != HIDDEN:
            self.removed[what] += 1
        return HIDDEN if value else value

    def _without(self, text: str, secret: str, what: str) -> str:
        count = text.count(secret)
        self.removed[what] += count
        return text.replace(secret, HIDDEN) if count else text

    def _variable(self, found: re.Match[str]) -> str:
        if kept_variable(found[1]) or found[2] in ("", HIDDEN):
            return found[0]
        self.removed["variables"] += 1
        return f"{found[1]}={HIDDEN}"

    def _pair(self, found: re.Match[str]) -> str:
        if found[2].strip("\"'") == HIDDEN:
            return found[0]
        self.removed["secrets"] += 1
        return found[1] + _masked(found[2])

    def _entry(self, found: re.Match[str]) -> str:
        if found[2] == HIDDEN or not is_private_name(found[1]):
            return found[0]
        self.removed["secrets"] += 1
        return found[0].replace(found[2], HIDDEN)

    def _option(self, found: re.Match[str]) -> str:
        option, value = (found[1], found[2]) if found[1] else (found[3], found[4])
        if value.strip("\"'") == HIDDEN:
            return found[0]
        self.removed["secrets"] += 1
        return option + _masked(value)

    def _private_key(self, found: re.Match[str]) -> str:
        self.removed["keys"] += 1
        return HIDDEN

    def _identifier(self, found: re.Match[str]) -> str:
        """The same for the same one in every file, so that one GPU stays one; nobody can tell which."""
        if found[0].startswith(_ANONYMOUS):
            return found[0]
        self.removed["identifiers"] += 1
        digest = hashlib.sha256(found[0].lower().encode()).hexdigest()
        return f"{_ANONYMOUS}{digest[:4]}-{digest[4:16]}"

    def _address(self, found: re.Match[str]) -> str:
        self.removed["addresses"] += 1
        return f"{found[1]}://{HIDDEN}"

    def _path(self, found: re.Match[str]) -> str:
        cut = _cut(found[0])
        self.removed["folders"] += cut != found[0]
        return cut


def _masked(value: str) -> str:
    """The marks around a value stay, so that JSON within a text stays JSON."""
    return value[0] + HIDDEN + value[0] if value[0] in "\"'" else HIDDEN


def _cut(path: str) -> str:
    """A path from the package on that its file is of; of another file only the name."""
    sign = "\\" if "\\" in path else "/"
    parts = [part for part in re.split(r"[\\/]", path) if part]
    for at, part in enumerate(parts[:-1]):
        if _INDUCTOR.fullmatch(part):
            return sign.join(["", "tmp", "torchinductor_user", *parts[at + 1 :]])
        if _PACKAGES.fullmatch(part):
            return sign.join(["lib", *parts[at:]] if part.startswith("python") else parts[at:])
    return parts[-1] if parts else path
