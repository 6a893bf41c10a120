"""The text that a node's Python is started with, and the header that it reads first.

`python -I -B -c BOOT` reads a header line and a zip from standard input, verifies the zip before
anything of it runs, and then splits in two: the child runs the zip, the parent watches over it.
The parent ends every process of the run when the deadline passes or when standard input closes,
which is also what a killed controller or a broken connection looks like. All of them are in one
process group: the probe's children stay in the group they are born into.

Where the header asks for it, the parent stays for a while when the answer is out, and answers each
ping, a line on standard input, with its clock and that line. Pings come after the answer: before it
they might come between two pieces of a frame. Who has pinged has all of the answer: when it then
closes standard input, the child has half a second to end by itself.

`-S` is not passed: with it a virtual environment would report its base prefix.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping, NamedTuple, Tuple

# The oldest Python that runs the node side.
OLDEST_PYTHON = (3, 8)

# BOOT says why it stops in a line of its own, since it stops before it could write frames.
STOP = b"@envaudit-stop "
STOPS = ("python", "header", "size", "digest", "place")
# BOOT's exit status where standard input ends before all has arrived, as when its controller is gone.
CUT_OFF = 4

# What the answer to a ping begins with: `@envaudit-pong <nanoseconds since the epoch> <the ping>`.
PONG = b"@envaudit-pong "

MAX_HEADER_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
# Long enough for a payload on a slow line; the header then brings the run's own deadline.
HEADER_DEADLINE_S = 60
# How long the pings may go on once the answer is out.
PINGS_S = 5

# The text must survive the quoting of every login shell (sh, bash, csh, fish) inside one pair of
# single quotes, and csh besides takes no newline there: so no ' \ ! and ~ stands for the newline.
# The first line is read by every Python there is, the rest only by those that are new enough.
_FIRST = (
    'import sys;sys.version_info<{oldest}and(sys.stdout.write("%s@envaudit-stop python %s%s"'
    "%(chr(10),sys.version.split()[0],chr(10))),sys.stdout.flush(),sys.exit(3));"
    'exec("""{rest}""".replace("~",chr(10)))'
)

_REST = """\
import hashlib,json,os,select,signal,time
began=time.monotonic()
signal.alarm({header_deadline_s})
def stop(word,text):
 os.write(1,("%c@envaudit-stop %s %s%c"%(10,word,text,10)).encode())
 os._exit(3)
def take(count):
 parts=[]
 while count:
  part=os.read(0,min(count,65536))
  if not part:os._exit({cut_off})
  parts.append(part)
  count-=len(part)
 return b"".join(parts)
line=b""
while not line.endswith(bytes([10])):
 if len(line)>{max_header_bytes}:stop("header","too long")
 line+=take(1)
try:
 header=json.loads(line.decode())
 size=int(header["size"])
 deadline_s=float(header["deadline_s"])
 digest=header["sha256"]
except Exception as error:stop("header",type(error).__name__)
if not 0<size<={max_payload_bytes}:stop("size",size)
payload=take(size)
if not hashlib.sha256(payload).hexdigest()==digest:stop("digest",size)
place=""
try:
 try:fd=os.memfd_create("envaudit")
 except (AttributeError,OSError):
  import tempfile
  fd,place=tempfile.mkstemp(".pyz","envaudit-")
 with open(fd,"wb",closefd=False) as file:file.write(payload)
 path="/proc/self/fd/%d"%fd
 if not os.access(path,os.R_OK):
  if not place:
   import tempfile
   fd,place=tempfile.mkstemp(".pyz","envaudit-")
   with open(fd,"wb",closefd=False) as file:file.write(payload)
  path=place
 elif place:
  os.unlink(place)
  place=""
except OSError as error:stop("place",error)
del payload
try:os.setpgid(0,0)
except OSError:pass
child=os.fork()
if child==0:
 signal.alarm(0)
 os.dup2(os.open("/dev/null",os.O_RDONLY),0)
 sys.path.insert(0,path)
 from envaudit.transport.node import answer
 code=answer(header)
 sys.stdout.flush()
 os._exit(code or 0)
through=[]
def end(*why):
 if through:os._exit(0)
 if place:os.unlink(place)
 os.killpg(0,signal.SIGKILL)
def watch():
 left,grace=1,0
 while left>0:
  left=began+deadline_s-time.monotonic()
  if select.select([0],[],[],max(left,0))[0]:
   ping=os.read(0,64)
   if ping:
    os.write(1,b"@envaudit-pong %d "%time.time_ns()+ping)
    grace=500
   else:left=0
 while grace and not through:
  time.sleep(0.001)
  grace-=1
 end()
signal.signal(signal.SIGALRM,end)
signal.alarm(int(deadline_s)+2)
for number in (signal.SIGHUP,signal.SIGINT,signal.SIGTERM):signal.signal(number,end)
import _thread
_thread.start_new_thread(watch,())
status=os.waitpid(child,0)[1]
if place:os.unlink(place)
if status==0 and header.get("pings"):
 place=""
 through.append(1)
 time.sleep({pings_s})
os._exit(status>>8 if status>255 else 128+status if status else 0)
"""


def _one_line() -> str:
    rest = _REST.format(
        header_deadline_s=HEADER_DEADLINE_S,
        max_header_bytes=MAX_HEADER_BYTES,
        max_payload_bytes=MAX_PAYLOAD_BYTES,
        pings_s=PINGS_S,
        cut_off=CUT_OFF,
    )
    text = _FIRST.format(oldest=OLDEST_PYTHON, rest=rest.replace("\n", "~"))
    assert not set(text) & set("'\\!\n"), "the text would not survive a login shell"
    assert "~" not in _REST
    assert '"""' not in _REST
    return text


BOOT = _one_line()

# What follows the interpreter in every argv.
ARGUMENTS = ("-I", "-B", "-c", BOOT)


class Payload(NamedTuple):
    """The zip that is piped to a node, and its digest in hex."""

    zip_bytes: bytes
    sha256: str


def payload_of(zip_bytes: bytes) -> Payload:
    """The payload of a zip.

    Raises:
        ValueError: larger than BOOT takes.
    """
    if not 0 < len(zip_bytes) <= MAX_PAYLOAD_BYTES:
        raise ValueError(f"a payload of {len(zip_bytes)} bytes, at most {MAX_PAYLOAD_BYTES} are taken")
    return Payload(zip_bytes, hashlib.sha256(zip_bytes).hexdigest())


def header_line(
    payload: Payload,
    *,
    nonce: str,
    node: str,
    deadline_s: float,
    request: Mapping[str, Any],
    pings: bool = False,
) -> bytes:
    """The line that announces a payload: sizes and digest for BOOT, the rest for the zip.

    `deadline_s` counts from the start of the node's Python; with `pings` it stays for them once the
    answer is out, until standard input closes.

    Raises:
        ValueError: longer than BOOT takes.
    """
    header = {
        "size": len(payload.zip_bytes),
        "sha256": payload.sha256,
        "nonce": nonce,
        "node": node,
        "deadline_s": deadline_s,
        "request": dict(request),
        "pings": pings,
    }
    line = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
    if len(line) > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {len(line)} bytes, at most {MAX_HEADER_BYTES} are taken")
    return line


def stop_of(line: bytes) -> Tuple[str, str]:
    """The word and the text of a line by which BOOT says why it stopped; ("", "") for another line."""
    if not line.startswith(STOP):
        return "", ""
    word, _, text = line[len(STOP) :].decode("utf-8", "replace").strip().partition(" ")
    return (word, text[:200]) if word in STOPS else ("", "")
