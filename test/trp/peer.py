#!/usr/bin/env python3
"""A TRP peer written from the page, apart from src/trp: DDP and RDMAP over UDP, both profiles, both roles.

  peer.py golden FILE            check the vectors of a data file against this codec; prints a count
  peer.py listen [options]       accept one connection after another
  peer.py connect HOST PORT [options]

Options: --profile urdma|fixed  --port N  --host H  --private HEX  --reject  --first PSN  --mtu N  --window N
--lose P --repeat P --reorder P (probabilities 0..1, of the datagrams that this side sends)  --seed N
--deaf-duplicates (urdma's defect: a duplicate is not acknowledged again)  --life SECONDS
--miss P (of the datagrams that come)
--placed (a Read is answered when its request arrives, whatever is missing below)
--echo (no commands: each Send is sent back, and the private data names a region, as a target of
`iwarp conformance run --wire trp` does; options stand before `connect HOST`, to which the dialer adds PORT)

Commands are JSON lines on standard input, events JSON lines on standard output:
  {"do":"region","length":N,"hex":H}      -> {"event":"region","stag":S}
  {"do":"recv","length":N}                posts a receive -> {"event":"posted"}
  {"do":"send","hex":H,"opcode":N,"invalidate":S}   a plain Send unless it says otherwise
  {"do":"immediate","hex":H,"opcode":N}
  {"do":"write","stag":S,"to":N,"hex":H}
  {"do":"read","stag":S,"to":N,"length":N}  -> {"event":"read","hex":H}
  {"do":"peek","stag":S}                  -> {"event":"peek","hex":H}
  {"do":"fin"} {"do":"stats"} {"do":"quit"}
"""
import argparse
import json
import os
import random
import select
import socket
import struct
import sys
import time

DATA, REQUEST, ACCEPT, REJECT, FIN, SACK, PIECE = 0x0000, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x7000
NAMES = {REQUEST: "request", ACCEPT: "accept", REJECT: "reject", FIN: "fin", SACK: "sack", PIECE: "piece"}
VALUES = {name: value for value, name in NAMES.items()}
HEADER = 10
MASK = 0xFFFFFFFF
RESEND_FIRST, SETUP_LIMIT, DEAD_AFTER = 0.05, 5.0, 15.0
WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0, 1, 2, 3, 7
SENDS = (3, 4, 5, 6)
IMMEDIATES = (8, 9)
ALIAS = 0x01000000
AMPLIFICATION = 3
FIRST_STAG, ECHO_LENGTH, ECHO_RECEIVES = 0x200, 4096, 32


def before(a, b):
    """Serial-number order of 32 bits: a precedes b."""
    return a != b and ((b - a) & MASK) < 0x80000000


def pack(opcode, psn, ack, rest=b""):
    return struct.pack(">IIH", psn & MASK, ack & MASK, opcode) + rest


def pack_setup(opcode, psn, ack, ird, ord_, private):
    return pack(opcode, psn, ack, struct.pack(">HHH", len(private), ird, ord_) + private)


def parse(raw):
    """Fields of a datagram, or None if it is malformed."""
    if len(raw) < HEADER:
        return None
    psn, ack, opcode = struct.unpack_from(">IIH", raw)
    rest = raw[HEADER:]
    fields = {"psn": psn, "ackPsn": ack}
    if opcode == DATA:
        fields["opcode"] = "data" if rest else "ack"
        if rest:
            fields["body"] = rest
        return fields
    if opcode not in NAMES:
        return None
    fields["opcode"] = NAMES[opcode]
    if opcode == PIECE:
        fields["body"] = rest
        return fields if right_piece(rest) else None
    if opcode in (REQUEST, ACCEPT, REJECT):
        if len(rest) < 6:
            return None
        length, fields["ird"], fields["ord"] = struct.unpack_from(">HHH", rest)
        if len(rest) != 6 + length:
            return None
        fields["privateData"] = rest[6:]
    elif rest:
        return None
    if opcode == SACK and not before(psn, ack):
        return None
    return fields


def right_piece(body):
    """All pieces of a segment are equally long but the last, which ends with it (protocol-notes 4.2)."""
    if len(body) < 5:
        return False
    total, count, index = struct.unpack(">HBB", body[:4])
    if index >= count:
        return False
    step = -(-total // count)
    return len(body) - 4 == min(step, total - index * step)


def untagged(last, opcode, qn, msn, mo, payload, invalidate=0):
    control = 0x41 if last else 0x01
    return bytes([control, 0x40 | opcode]) + struct.pack(">IIII", invalidate, qn, msn, mo) + payload


def tagged(last, opcode, stag, to, payload):
    control = 0xC1 if last else 0x81
    return bytes([control, 0x40 | opcode]) + struct.pack(">IQ", stag, to) + payload


def piece_of(psn, ack, segment, count, index):
    step = -(-len(segment) // count)
    part = segment[index * step:(index + 1) * step]
    return pack(PIECE, psn, ack, struct.pack(">HBB", len(segment), count, index) + part)


def parse_ddp(segment):
    """Header of a DDP segment as a dict, or None."""
    if len(segment) < 14 or segment[0] & 0x3F != 1 or segment[1] & 0xF0 != 0x40:
        return None
    fields = {"tagged": segment[0] & 0x80 != 0, "last": segment[0] & 0x40 != 0, "opcode": segment[1] & 15}
    if fields["tagged"]:
        fields["stag"], fields["to"] = struct.unpack_from(">IQ", segment, 2)
        fields["payload"] = segment[14:]
        return fields
    if len(segment) < 18:
        return None
    invalidate, fields["qn"], fields["msn"], fields["mo"] = struct.unpack_from(">IIII", segment, 2)
    if invalidate:
        fields["invalidateStag"] = invalidate
    fields["payload"] = segment[18:]
    return fields


def is_read_request(ddp):
    return (not ddp["tagged"] and ddp["qn"] == 1 and ddp["opcode"] == READ_REQUEST
            and len(ddp["payload"]) == 28)


class Network:
    """Sends datagrams, or loses, repeats or delays them behind the next one."""

    def __init__(self, sock, options, rng):
        self.sock, self.options, self.rng = sock, options, rng
        self.held = []
        self.sent = self.lost = self.repeated = self.reordered = 0

    def send(self, raw, to):
        self.sent += 1
        if self.rng.random() < self.options.lose:
            self.lost += 1
            return
        copies = 1
        if self.rng.random() < self.options.repeat:
            self.repeated += 1
            copies = 2
        if self.rng.random() < self.options.reorder:
            self.reordered += 1
            self.held.append((time.monotonic() + 0.02, raw, to))
            return
        for _ in range(copies):
            self._put(raw, to)
        self.flush(True)

    def flush(self, everything):
        now = time.monotonic()
        held, self.held = self.held, []
        for entry in held:
            if everything or entry[0] <= now:
                self._put(entry[1], entry[2])
            else:
                self.held.append(entry)

    def _put(self, raw, to):
        try:
            self.sock.sendto(raw, to)
        except OSError:
            pass


class Sender:
    """Segments on their way: a window, resends, acknowledgements (section 5)."""

    def __init__(self, profile, first, window, dead_after):
        self.fixed = profile == "fixed"
        self.dead_after = dead_after if dead_after is not None else DEAD_AFTER if self.fixed else 0.0
        self.next = self.una = first & MASK
        self.window = window
        self.waiting = []
        self.flight = {}
        self.srtt = self.rttvar = None
        self.rto = 0.2 if self.fixed else 0.01
        self.progress = time.monotonic()
        self.resends = 0
        self.dead = False

    def acknowledge(self, ack):
        """True if the acknowledgement is one that can be."""
        if ack != self.una and not before(self.una, ack):
            return True  # old: reordered on its way
        if before(self.next, ack):
            return False
        now = time.monotonic()
        while self.una != ack:
            entry = self.flight.pop(self.una, None)
            if entry is not None and entry["tries"] == 1 and self.fixed:
                self._sample(now - entry["at"])
            self.una = (self.una + 1) & MASK
            self.progress = now
        return True

    def _sample(self, rtt):
        if self.srtt is None:
            self.srtt, self.rttvar = rtt, rtt / 2
        else:
            self.rttvar += (abs(self.srtt - rtt) - self.rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8
        self.rto = min(2.0, max(0.02, self.srtt + 4 * self.rttvar))

    def sack(self, first, end):
        if before(first, self.una) or before(self.next, end):
            return False
        for psn, entry in self.flight.items():
            if entry["sacked"]:
                continue
            if psn == first or (before(first, psn) and before(psn, end)):
                entry["sacked"] = True
            elif before(psn, first) and self.fixed and entry["tries"] == 1:
                entry["beyond"] += 1
                if entry["beyond"] >= 3:
                    entry["due"] = 0
        return True

    def pump(self, put):
        now = time.monotonic()
        for psn, entry in list(self.flight.items()):
            if entry["sacked"] and now - entry["at"] < 1 or entry["due"] > now:
                continue
            silent = now - self.progress
            if silent > self.dead_after if self.fixed else entry["tries"] >= 6 and silent >= self.dead_after:
                self.dead = True
                return
            entry["tries"] += 1
            entry["at"] = now
            backoff = 2 ** min(entry["tries"] - 1, 6) if self.fixed else 1
            entry["due"] = now + min(2.0, self.rto * backoff)
            entry["sacked"] = False
            self.resends += 1
            put(psn, entry["body"])
        while self.waiting and len(self.flight) < self.window:
            if not self.flight:
                self.progress = now
            body = self.waiting.pop(0)
            psn, self.next = self.next, (self.next + 1) & MASK
            self.flight[psn] = {"body": body, "at": now, "due": now + self.rto, "tries": 1, "sacked": False,
                                "beyond": 0}
            put(psn, body)

    @property
    def idle(self):
        return not self.waiting and not self.flight


class Receiver:
    """Which PSNs have come (section 5): one range above the hole for urdma, 64 otherwise."""

    def __init__(self, profile, first):
        self.expected = first & MASK
        self.limit = 64 if profile == "fixed" else 1
        self.ranges = []
        self.owed = False
        self.duplicates = 0

    def offer(self, psn):
        """True if the datagram is new and kept."""
        self.owed = True
        if before(psn, self.expected) or any(a == psn or before(a, psn) and before(psn, b)
                                             for a, b in self.ranges):
            self.duplicates += 1
            return False
        if ((psn - self.expected) & MASK) > 65536:
            return False
        after = (psn + 1) & MASK
        if psn == self.expected:
            self.expected = after
            if self.ranges and self.ranges[0][0] == self.expected:
                self.expected = self.ranges.pop(0)[1]
            return True
        for i, (a, b) in enumerate(self.ranges):
            if psn == b:
                self.ranges[i] = (a, after)
                if i + 1 < len(self.ranges) and self.ranges[i + 1][0] == after:
                    self.ranges[i] = (a, self.ranges.pop(i + 1)[1])
                return True
            if after == a:
                self.ranges[i] = (psn, b)
                return True
        if len(self.ranges) >= self.limit:
            return False
        self.ranges.append((psn, after))
        self.ranges.sort(key=lambda one: (one[0] - self.expected) & MASK)
        return True


class Rdma:
    """DDP and RDMAP: places a segment when it comes, completes in PSN order (section 4)."""

    def __init__(self, profile, limit, queue, event, placed=False):
        self.urdma = profile == "urdma"
        self.placed, self.answered, self.aliases, self.answered_early = placed, set(), 0, 0
        self.limit, self.queue, self.event = limit, queue, event
        self.regions, self.receives, self.reads = {}, [], []
        self.next_stag = 0x100
        self.msn = {0: 1, 1: 1, 2: 1}
        self.taken = 0
        self.terminated = False
        self.by_psn = {}

    def region(self, data):
        self.next_stag += 0x100
        self.regions[self.next_stag] = bytearray(data)
        return self.next_stag

    def _cut(self, payload, make):
        pieces = [payload[i:i + self.limit] for i in range(0, len(payload), self.limit)] or [b""]
        for i, piece in enumerate(pieces):
            self.queue(make(i == len(pieces) - 1, i * self.limit, piece))

    def send(self, payload, opcode=SEND, invalidate=0):
        msn, self.msn[0] = self.msn[0], self.msn[0] + 1
        self._cut(payload, lambda last, mo, piece: untagged(last, opcode, 0, msn, mo, piece, invalidate))

    def write(self, stag, to, payload, opcode=WRITE):
        self._cut(payload, lambda last, at, piece: tagged(last, opcode, stag, to + at, piece))

    def read(self, stag, to, length):
        sink = self.region(bytes(length))
        msn, self.msn[1] = self.msn[1], self.msn[1] + 1
        self.reads.append(sink)
        self.queue(untagged(True, READ_REQUEST, 1, msn, 0, struct.pack(">IQIIQ", sink, 0, length, stag, to)))

    def terminate(self, layer_type, code, segment, header):
        if self.terminated:
            return
        self.terminated = True
        shape = (0x03 if header == 14 else 0x07) if self.urdma else (0xC0 if header in (14, 18) else 0xE0)
        body = bytes([layer_type, code, shape, 0]) + struct.pack(">H", len(segment)) + segment[:header]
        self.queue(untagged(True, TERMINATE, 2, 1, 0, body))
        self.event({"event": "sent-terminate", "layerType": layer_type, "code": code})

    def arrived(self, psn, segment, early):
        """A new segment, in whatever order: tagged and Send payloads go to their places now."""
        ddp = parse_ddp(segment)
        if self.placed and ddp is not None and is_read_request(ddp):
            self.answered.add(psn)
            self.answered_early += early
            self._answer(ddp, segment)
        self.by_psn[psn] = (ddp, segment)
        if ddp is None:
            return
        if ddp["tagged"]:
            memory = self.regions.get(ddp["stag"])
            end = ddp["to"] + len(ddp["payload"])
            if memory is not None and end <= len(memory):
                memory[ddp["to"]:end] = ddp["payload"]
        elif ddp["qn"] == 0 and 0 <= ddp["msn"] - 1 < len(self.receives):
            buffer = self.receives[ddp["msn"] - 1]
            if ddp["mo"] + len(ddp["payload"]) <= len(buffer):
                buffer[ddp["mo"]:ddp["mo"] + len(ddp["payload"])] = ddp["payload"]

    def complete(self, psn):
        """Nothing is missing up to this PSN."""
        ddp, segment = self.by_psn.pop(psn)
        if self.terminated or psn in self.answered:
            return
        if ddp is None:
            self.terminate(0x12, 0x04, segment, min(18, len(segment)))
        elif ddp["tagged"]:
            self._complete_tagged(ddp, segment)
        elif ddp["qn"] == 0 and ddp["opcode"] in SENDS:
            if ddp["msn"] > len(self.receives):
                self.terminate(0x12, 0x02, segment, 18)
            elif ddp["mo"] + len(ddp["payload"]) > len(self.receives[ddp["msn"] - 1]):
                self.terminate(0x12, 0x05, segment, 18)
            elif ddp["last"]:
                got = bytes(self.receives[ddp["msn"] - 1][:ddp["mo"] + len(ddp["payload"])])
                self.event({"event": "recv", "hex": got.hex(), "msn": ddp["msn"], "opcode": ddp["opcode"],
                            "invalidate": ddp.get("invalidateStag", 0)})
        elif ddp["qn"] == 0 and ddp["opcode"] in IMMEDIATES and len(ddp["payload"]) == 8:
            if ddp["msn"] > len(self.receives):
                self.terminate(0x12, 0x02, segment, 18)
            else:
                self.event({"event": "immediate", "hex": ddp["payload"].hex(), "opcode": ddp["opcode"]})
        elif is_read_request(ddp):
            self._answer(ddp, segment)
        elif ddp["qn"] == 2 and ddp["opcode"] == TERMINATE and len(ddp["payload"]) >= 4:
            self.event({"event": "terminate", "layerType": ddp["payload"][0], "code": ddp["payload"][1],
                        "control": ddp["payload"][2]})
        else:
            self.terminate(0x02, 0x05, segment, 18)

    def _complete_tagged(self, ddp, segment):
        memory = self.regions.get(ddp["stag"])
        if memory is None:
            self.terminate(0x11, 0x00, segment, 14)
        elif ddp["to"] + len(ddp["payload"]) > len(memory):
            self.terminate(0x11, 0x01, segment, 14)
        elif ddp["opcode"] == READ_RESPONSE and ddp["last"]:
            if ddp["stag"] in self.reads:
                self.reads.remove(ddp["stag"])
            self.event({"event": "read", "hex": bytes(memory).hex()})
        elif ddp["opcode"] == WRITE and ddp["last"]:
            self.event({"event": "written", "stag": ddp["stag"]})

    def _answer(self, ddp, segment):
        sink, to, length, source, at = struct.unpack(">IQIIQ", ddp["payload"])
        self.aliases += sink == ALIAS | ddp["msn"]
        memory = self.regions.get(source)
        if memory is None:
            self.terminate(0x01, 0x00, segment, 46)
        elif at + length > len(memory):
            self.terminate(0x01, 0x01, segment, 46)
        else:
            self.write(sink, to, bytes(memory[at:at + length]), READ_RESPONSE)


class Connection:
    def __init__(self, sock, peer, options, rng, event, own_first, peer_first):
        self.sock, self.peer, self.options, self.event = sock, peer, options, event
        self.net = Network(sock, options, rng)
        limit = 1024 if options.profile == "urdma" else options.mtu - 10 - 18
        self.sender = Sender(options.profile, own_first, options.window, options.dead_after)
        self.receiver = Receiver(options.profile, peer_first)
        self.rdma = Rdma(options.profile, limit, self.sender.waiting.append, event, options.placed)
        self.done_to = peer_first & MASK
        self.state = "open"
        self.fin_sent, self.fin_next, self.fin_tries = False, 0.0, 0
        self.peer_fin = None
        self.accept = None
        self.accept_next, self.accept_wait, self.accept_end = 0.0, RESEND_FIRST, 0.0
        self.accept_room = 0
        self.heard = self.spoke = time.monotonic()
        self.malformed = self.foreign = self.refused = 0
        self.partial = {}
        self.pieces_in = self.pieces_out = 0

    def put(self, raw):
        self.spoke = time.monotonic()
        self.net.send(raw, self.peer)

    def handle(self, raw, source):
        if source[:2] != self.peer[:2]:
            self.foreign += 1
            return
        if len(raw) > self.options.narrow or self.net.rng.random() < self.options.miss:
            return
        fields = parse(raw)
        if fields is None:
            self.malformed += 1
            return
        self.heard = time.monotonic()
        kind = fields["opcode"]
        if kind == "request":
            return
        if kind == "accept":
            self.put(pack(DATA, self.sender.next, self.receiver.expected))
            return
        self.accept = None
        if kind == "sack":
            if not self.sender.sack(fields["psn"], fields["ackPsn"]):
                self.refused += 1
            return
        if kind in ("data", "piece", "ack", "fin") and not self.sender.acknowledge(fields["ackPsn"]):
            self.refused += 1
            return
        if kind == "piece":
            fields["body"] = self.whole(fields)
            kind = "data" if fields["body"] is not None else "part"
        if kind == "data":
            known = self.receiver.duplicates
            if self.receiver.offer(fields["psn"]):
                early = fields["psn"] != self.done_to
                self.rdma.arrived(fields["psn"], fields["body"], early)
            elif self.receiver.duplicates > known and self.options.deaf_duplicates:
                self.receiver.owed = False
            while self.done_to != self.receiver.expected:
                self.rdma.complete(self.done_to)
                self.done_to = (self.done_to + 1) & MASK
        elif kind == "ack" and self.heard - self.spoke > 1 and self.options.profile == "fixed":
            self.receiver.owed = True
        elif kind == "fin":
            self.peer_fin = fields["psn"]

    def whole(self, fields):
        """The segment, if this was the last piece it lacked (protocol-notes 4.2)."""
        body = fields["body"]
        total, count, index = struct.unpack(">HBB", body[:4])
        cut, pieces = self.partial.setdefault(fields["psn"], ((total, count), {}))
        if cut != (total, count):
            self.malformed += 1
            return None
        pieces[index] = body[4:]
        self.pieces_in += 1
        if len(pieces) < count:
            return None
        segment = b"".join(pieces[i] for i in range(count))
        del self.partial[fields["psn"]]
        assert len(segment) == total
        return segment

    def cut(self, psn, body):
        most = self.options.pieces
        if not most or len(body) <= most:
            return [pack(DATA, psn, self.receiver.expected, body)]
        count = -(-len(body) // most)
        self.pieces_out += count
        return [piece_of(psn, self.receiver.expected, body, count, i) for i in range(count)]

    def tick(self):
        now = time.monotonic()
        self.net.flush(False)
        if self.accept is not None and now >= self.accept_next:
            if now > self.accept_end:
                return self.close("timeout")
            # B14: three times what has come from there, until the client is heard at this port.
            if self.accept_room >= len(self.accept) or self.options.profile == "urdma":
                self.accept_room -= len(self.accept)
                self.put(self.accept)
            self.accept_next = now + self.accept_wait
            self.accept_wait *= 2
        carried = [False]

        def put(psn, body):
            carried[0] = True
            for piece in self.cut(psn, body):
                self.put(piece)

        self.sender.pump(put)
        if self.sender.dead:
            return self.close("retry exceeded")
        if self.receiver.owed:
            ranges = self.receiver.ranges
            if self.options.profile == "urdma":
                if ranges:
                    self.put(pack(SACK, *ranges[0]))
                elif not carried[0]:
                    self.put(pack(DATA, self.sender.next, self.receiver.expected))
            else:
                if not carried[0] or ranges:
                    self.put(pack(DATA, self.sender.next, self.receiver.expected))
                for one in ranges[:4]:
                    self.put(pack(SACK, *one))
            self.receiver.owed = False
        self._closing(now)

    def _closing(self, now):
        if self.peer_fin is not None and self.receiver.expected == self.peer_fin and self.state == "open":
            self.put(pack(FIN, self.sender.next, self.receiver.expected))
            return self.close("fin")
        if self.state == "closing" and self.sender.idle and now >= self.fin_next:
            if self.fin_sent and (self.fin_tries >= 8 or self.options.profile == "urdma"):
                return self.close("silence after fin")
            self.put(pack(FIN, self.sender.next, self.receiver.expected))
            self.fin_sent, self.fin_tries = True, self.fin_tries + 1
            self.fin_next = now + max(0.05, self.sender.rto)
        if self.state == "closing" and self.peer_fin is not None and self.fin_sent:
            return self.close("fin")

    def close(self, why):
        if self.state == "closed":
            return
        self.state = "closed"
        self.event({"event": "closed", "why": why})

    def stats(self):
        return {"event": "stats", "resends": self.sender.resends, "duplicates": self.receiver.duplicates,
                "malformed": self.malformed, "foreign": self.foreign, "refused": self.refused,
                "sent": self.net.sent, "lost": self.net.lost, "repeated": self.net.repeated,
                "reordered": self.net.reordered, "piecesIn": self.pieces_in, "piecesOut": self.pieces_out,
                "idle": self.sender.idle, "aliases": self.rdma.aliases,
                "answeredEarly": self.rdma.answered_early}


class Peer:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.private = bytes.fromhex(options.private)
        if options.echo:
            self.private = struct.pack(">IQI", FIRST_STAG, 0, ECHO_LENGTH)
        self.connection = None
        self.pending = {}
        self.buffer = b""
        self.early = []
        self.posted = []
        self.quit = False

    def event(self, fields):
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    def family(self):
        return socket.AF_INET6 if ":" in self.options.host else socket.AF_INET

    def socket(self, port=0):
        sock = socket.socket(self.family(), socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind((self.options.host, port))
        sock.setblocking(False)
        return sock

    def established(self, private, peer_ird, peer_ord):
        address = self.connection.peer
        for length in self.posted:
            self.connection.rdma.receives.append(bytearray(length))
        self.event({"event": "established", "privateData": private.hex(), "ird": peer_ird, "ord": peer_ord,
                    "peerPort": address[1], "port": self.connection.sock.getsockname()[1]})
        for line in self.early:
            self.command(line)
        self.early = []
        if self.options.echo:
            self.echo(self.connection)

    def echo(self, one):
        rdma = one.rdma
        assert rdma.region(bytes(ECHO_LENGTH)) == FIRST_STAG
        rdma.receives.extend(bytearray(ECHO_LENGTH) for _ in range(ECHO_RECEIVES))

        def event(fields):
            self.event(fields)
            if fields["event"] == "recv":
                rdma.receives.append(bytearray(ECHO_LENGTH))
                rdma.send(bytes.fromhex(fields["hex"]))

        one.event = rdma.event = event

    def listen(self):
        sock = self.listener = self.socket(self.options.port)
        self.event({"event": "listening", "port": sock.getsockname()[1]})
        net = Network(sock, self.options, self.rng)

        def arrived(raw, source):
            fields = parse(raw)
            if fields is None or fields["opcode"] != "request":
                return
            if self.options.reject:
                asked = fields["psn"] if self.options.profile == "fixed" else 0
                net.send(pack_setup(REJECT, 0, asked, 0, 0, self.private), source)
                self.event({"event": "rejected"})
                return
            key = source[:2]
            if key in self.pending:
                known = self.pending[key]
                if known.accept is not None:
                    known.accept_next = 0
                    known.accept_room += AMPLIFICATION * len(raw)
                return
            own = self.options.first if self.options.profile == "fixed" else 0
            theirs = fields["psn"] if self.options.profile == "fixed" else 0
            made = Connection(self.socket(), source, self.options, self.rng, self.event, own, theirs)
            made.accept = pack_setup(ACCEPT, own, theirs, min(16, max(1, fields["ord"])), fields["ird"],
                                     self.private)
            made.accept_end = time.monotonic() + SETUP_LIMIT
            made.accept_room = AMPLIFICATION * len(raw)
            self.pending[key] = self.connection = made
            self.established(fields["privateData"], fields["ird"], fields["ord"])

        self.loop(sock, arrived)

    def connect(self, host, port):
        sock = self.socket()
        family = self.family()
        target = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0][4]
        own = self.options.first if self.options.profile == "fixed" else 0
        request = pack_setup(REQUEST, own, 0, 16, 16, self.private)
        net = Network(sock, self.options, self.rng)
        self.due, self.wait, self.end = 0.0, RESEND_FIRST, time.monotonic() + SETUP_LIMIT

        def arrived(raw, source):
            if self.connection is not None:
                return
            fields = parse(raw)
            if fields is None or source[0] != target[0]:
                return
            if self.options.profile == "fixed" and fields["ackPsn"] != own:
                return  # B1: an answer to some other request
            if fields["opcode"] == "reject":
                self.event({"event": "rejected", "privateData": fields["privateData"].hex()})
                self.quit = True
            elif fields["opcode"] == "accept":
                theirs = fields["psn"] if self.options.profile == "fixed" else 0
                self.connection = Connection(sock, source, self.options, self.rng, self.event, own, theirs)
                self.connection.put(pack(DATA, own, theirs))
                self.established(fields["privateData"], fields["ird"], fields["ord"])

        def ask():
            now = time.monotonic()
            if self.connection is not None:
                return
            net.flush(False)
            if now > self.end:
                self.event({"event": "timeout"})
                self.quit = True
            elif now >= self.due:
                net.send(request, target)
                self.due, self.wait = now + self.wait, self.wait * 2

        self.loop(sock, arrived, ask)

    def loop(self, sock, arrived, idle=lambda: None):
        over = time.monotonic() + self.options.life
        while not self.quit and time.monotonic() < over:
            sources = [sock] + [c.sock for c in self.pending.values()]
            if not self.options.echo:
                sources.append(sys.stdin)
            for ready in select.select(sources, [], [], 0.005)[0]:
                if ready is sys.stdin:
                    self.read_commands()
                    continue
                self.drain(ready, sock, arrived)
            idle()
            for one in list(self.pending.values()) or [self.connection]:
                if one is not None and one.state != "closed":
                    one.tick()

    def drain(self, ready, sock, arrived):
        for _ in range(256):
            try:
                raw, source = ready.recvfrom(65536)
            except OSError:
                return
            owner = next((c for c in self.pending.values() if c.sock is ready), None)
            if owner is None and self.connection is not None and self.connection.sock is ready:
                owner = self.connection
            if owner is None:
                arrived(raw, source)
            elif owner.state == "closed":
                self.after_close(owner, raw)
            else:
                owner.handle(raw, source)

    def after_close(self, owner, raw):
        fields = parse(raw)
        if fields is not None and fields["opcode"] == "fin":
            owner.put(pack(FIN, owner.sender.next, owner.receiver.expected))

    def read_commands(self):
        more = os.read(0, 1 << 16)
        if more == b"":
            self.quit = True
        self.buffer += more
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            if line.strip():
                self.command(json.loads(line))

    def command(self, line):
        what = line["do"]
        one = self.connection
        if what == "quit":
            self.quit = True
        elif what == "recv" and one is None:
            self.posted.append(line["length"])
        elif one is None:
            self.early.append(line)
        elif what == "recv":
            one.rdma.receives.append(bytearray(line["length"]))
            self.event({"event": "posted"})
        elif what == "region":
            data = bytes.fromhex(line["hex"]) if "hex" in line else bytes(line["length"])
            self.event({"event": "region", "stag": one.rdma.region(data)})
        elif what == "send":
            one.rdma.send(bytes.fromhex(line["hex"]), line.get("opcode", SEND), line.get("invalidate", 0))
        elif what == "immediate":
            one.rdma.send(bytes.fromhex(line["hex"]), line.get("opcode", IMMEDIATES[0]))
        elif what == "write":
            one.rdma.write(line["stag"], line["to"], bytes.fromhex(line["hex"]))
        elif what == "read":
            one.rdma.read(line["stag"], line["to"], line["length"])
        elif what == "peek":
            self.event({"event": "peek", "hex": bytes(one.rdma.regions[line["stag"]]).hex()})
        elif what == "raw":
            one.put(bytes.fromhex(line["hex"]))
        elif what == "stats":
            self.event(one.stats())
        elif what == "fin":
            if one.state == "open":
                one.state = "closing"


def golden(path):
    """Each vector written and read by this codec."""
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    checked = 0
    for vector in vectors["good"]:
        want, raw = vector["fields"], bytes.fromhex(vector["hex"])
        got = parse(raw)
        assert got is not None, vector["name"]
        for key in ("privateData", "body"):
            if key in got:
                got[key] = got[key].hex()
        plain = {key: value for key, value in want.items() if key not in ("ddp", "piece")}
        assert got == plain, (vector["name"], got, plain)
        kind = want["opcode"]
        if kind in ("request", "accept", "reject"):
            made = pack_setup(VALUES[kind], want["psn"], want["ackPsn"], want["ird"], want["ord"],
                              bytes.fromhex(want["privateData"]))
        elif kind == "piece":
            piece = want["piece"]
            made = piece_of(want["psn"], want["ackPsn"], bytes.fromhex(piece["of"]), piece["count"],
                            piece["index"])
        else:
            made = pack(VALUES.get(kind, DATA), want["psn"], want["ackPsn"], bytes.fromhex(want.get("body", "")))
        assert made == raw, vector["name"]
        if "ddp" in want:
            check_ddp(vector["name"], want["ddp"], bytes.fromhex(want["body"]))
        checked += 1
    for vector in vectors["bad"]:
        assert parse(bytes.fromhex(vector["hex"])) is None, vector["name"]
        checked += 1
    print(f"{checked} vectors")


def check_ddp(name, want, segment):
    ddp = parse_ddp(segment)
    assert ddp is not None, name
    payload = ddp.pop("payload")
    if ddp["tagged"]:
        made = tagged(ddp["last"], ddp["opcode"], ddp["stag"], ddp["to"], payload)
        ddp["to"] = hex(ddp["to"])
    else:
        made = untagged(ddp["last"], ddp["opcode"], ddp["qn"], ddp["msn"], ddp["mo"], payload,
                        ddp.get("invalidateStag", 0))
    ddp["payload"] = len(payload)
    assert ddp == want and made == segment, (name, ddp, want)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "golden":
        return golden(sys.argv[2])
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("listen", "connect"))
    parser.add_argument("target", nargs="*")
    parser.add_argument("--profile", choices=("urdma", "fixed"), default="fixed")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--private", default="")
    parser.add_argument("--reject", action="store_true")
    parser.add_argument("--first", type=lambda text: int(text, 0), default=0)
    parser.add_argument("--mtu", type=int, default=1400)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--repeat", type=float, default=0.0)
    parser.add_argument("--reorder", type=float, default=0.0)
    parser.add_argument("--miss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dead-after", type=float)
    parser.add_argument("--narrow", type=int, default=65536)
    parser.add_argument("--pieces", type=int, default=0)
    parser.add_argument("--deaf-duplicates", action="store_true")
    parser.add_argument("--placed", action="store_true")
    parser.add_argument("--echo", action="store_true")
    parser.add_argument("--life", type=float, default=60.0)
    options = parser.parse_args()
    peer = Peer(options)
    if options.role == "listen":
        peer.listen()
    else:
        peer.connect(options.target[0], int(options.target[1]))


if __name__ == "__main__":
    main()
