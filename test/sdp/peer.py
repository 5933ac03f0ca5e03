#!/usr/bin/env python3
"""A peer of the Sockets Direct Protocol over iWARP in another language, written from the RFCs and the page of
the protocol, not from our code. It keeps every rule that it can see, and judges whether the other side does.

    peer.py connect HOST PORT OPTIONS      the active side, MPA revision 1 or 2
    peer.py listen OPTIONS                 the passive side; prints its port

OPTIONS and the commands on standard input are JSON, one object a line; so are the events that it prints.
Commands (`do`): write {octets, seed, how}, urgent, end, abort, mode {mode}, cancel, policy {policy, part},
pause, resume, places {octets, count}, withdraw, resize {size}, report, quit. `how` is data (private buffers,
also where places are at hand), place (into the other side's places where there are any) or source
(advertised).
"""
import collections
import hashlib
import json
import os
import selectors
import socket
import struct
import sys

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
WRITE, READ, RESPONSE, SEND, SEND_INVALIDATE, SEND_SOLICITED, TERMINATE = 0, 1, 2, 3, 4, 5, 7

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    table, crc = TABLE, 0xFFFFFFFF
    for octet in data:
        crc = crc >> 8 ^ table[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def content(seed, octets):
    """Octets that both sides can make."""
    return hashlib.shake_128(b"sdp %d" % seed).digest(octets)


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Fault(Exception):
    """The other side has broken a rule."""


class Closed(Exception):
    pass


def require(held, what):
    if not held:
        raise Fault(what)


class Region:
    """Memory that the other side may use: from a base that is not 0, with one right."""

    def __init__(self, data, right):
        self.data, self.right = data, right
        self.written = 0  # octets from the start, without a hole
        self.base = 0


# ---------------------------------------------------------------------------------------- MPA, DDP and RDMAP


class Link:
    """One iWARP stream. The upper side gets whole messages, and each Write and Read has to fit a region."""

    def __init__(self, sock, segment):
        self.sock, self.segment = sock, segment
        self.inbox, self.outbox = bytearray(), bytearray()
        self.regions, self.stag = {}, 0x0A000100
        self.assembly, self.msn_in, self.msn_out, self.read_msn = bytearray(), 1, 0, 0
        self.reads = collections.deque()  # (stag, base, octets, done)
        self.spoken = False  # RFC 5044 7.1.2: a responder waits for the first FPDU
        self.counts = collections.Counter()

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise Closed("in the start-up")
            data += part
        return data

    def frame(self, key):
        head = self.exactly(20)
        require(head[:16] == key, "wrong key")
        return head[16], head[17], self.exactly(struct.unpack(">H", head[18:])[0])

    def connect(self, private, revision):
        """Returns private data of the reply. An RTR leaves at once if one was agreed."""
        flags, mine = 0x40, private
        if revision == 2:
            flags, mine = 0x50, struct.pack(">HH", 0x8000 | 16, 0x8000 | 16) + private
        self.sock.sendall(REQUEST_KEY + bytes([flags, revision]) + struct.pack(">H", len(mine)) + mine)
        flags, _, data = self.frame(REPLY_KEY)
        if flags & 0x20:
            raise Closed("rejected")
        self.spoken, rtr = True, False
        if revision == 2:
            ird, ord_ = struct.unpack(">HH", data[:4])
            rtr, data = bool(ird & 0x8000 and ord_ & 0x8000), data[4:]
        if rtr:
            self.write(0, 0, b"")
        return data, rtr

    def accept(self, answer):
        """`answer` makes private data of the reply from those of the request, or refuses with None."""
        _, revision, data = self.frame(REQUEST_KEY)
        words, flags = b"", 0x40
        if revision == 2:
            ird, ord_ = struct.unpack(">HH", data[:4])
            data, flags = data[4:], 0x50
            rtr = 0x8000 if ird & 0x8000 and ord_ & 0x8000 else 0  # a zero-length Write, if offered
            # RFC 6581 9.1: no more Reads than the other side serves, and as many served as it asks for.
            words = struct.pack(">HH", (ird & 0x8000) | max(16, ord_ & 0x3FFF), rtr | min(16, ird & 0x3FFF))
        mine = words + answer(data)
        self.sock.sendall(REPLY_KEY + bytes([flags, revision]) + struct.pack(">H", len(mine)) + mine)

    def register(self, data, right):
        self.stag += 0x101
        region = Region(data, right)
        region.stag, region.base = self.stag, 0x1_2340_0000 + self.stag * 7
        self.regions[region.stag] = region
        return region

    def deregister(self, region):
        self.regions.pop(region.stag, None)

    def place(self, stag, to, octets, right):
        region = self.regions.get(stag)
        require(region is not None, "access to STag %#x, which is not valid" % stag)
        require(region.right == right, "access of another kind than %s" % right)
        at = to - region.base
        require(0 <= at and at + octets <= len(region.data), "access outside of a region")
        return region, at

    def fpdu(self, ulpdu):
        data = struct.pack(">H", len(ulpdu)) + ulpdu
        data += b"\0" * (-len(data) % 4)
        self.outbox += data + struct.pack("<I", crc32c(data))

    def tagged(self, opcode, stag, to, data):
        at = 0
        while True:
            part = bytes(data[at : at + self.segment])
            last = 0x40 if at + len(part) == len(data) else 0
            self.fpdu(bytes([0x81 | last, 0x40 | opcode]) + struct.pack(">IQ", stag, to + at) + part)
            at += len(part)
            if last:
                return

    def write(self, stag, to, data):
        self.tagged(WRITE, stag, to, data)

    def send(self, data, solicited=False, invalidate=None):
        self.msn_out += 1
        self.counts["invalidates"] += invalidate is not None
        opcode = SEND_INVALIDATE if invalidate is not None else SEND_SOLICITED if solicited else SEND
        at = 0
        while True:
            part = data[at : at + self.segment]
            last = 0x40 if at + len(part) == len(data) else 0
            head = struct.pack(">IIII", invalidate or 0, 0, self.msn_out, at)
            self.fpdu(bytes([0x01 | last, 0x40 | opcode]) + head + part)
            at += len(part)
            if last:
                return

    def read(self, stag, to, octets, done):
        region = self.register(bytearray(octets), "response")
        self.read_msn += 1
        body = struct.pack(">IQIIQ", region.stag, region.base, octets, stag, to)
        self.fpdu(bytes([0x41, 0x40 | READ]) + struct.pack(">IIII", 0, 1, self.read_msn, 0) + body)
        self.reads.append((region, done))
        self.counts["fetched"] += octets

    def feed(self, data, deliver):
        self.inbox += data
        at = 0
        while len(self.inbox) - at >= 2:
            (length,) = struct.unpack_from(">H", self.inbox, at)
            end = at + 2 + length + -(length + 2) % 4
            if len(self.inbox) < end + 4:
                break
            frame = bytes(self.inbox[at:end])
            require(struct.unpack_from("<I", self.inbox, end)[0] == crc32c(frame), "bad CRC")
            at = end + 4
            self.spoken = True
            self.take(frame[2 : 2 + length], deliver)
        del self.inbox[:at]

    def take(self, ulpdu, deliver):
        opcode, last = ulpdu[1] & 0x0F, ulpdu[0] & 0x40
        if ulpdu[0] & 0x80:
            stag, to = struct.unpack(">IQ", ulpdu[2:14])
            data = ulpdu[14:]
            require(opcode in (WRITE, RESPONSE), "tagged opcode %d" % opcode)
            if opcode == RESPONSE or data:
                right = "response" if opcode == RESPONSE else "write"
                region, at = self.place(stag, to, len(data), right)
                require(at == region.written, "octets that do not follow those before")
                region.data[at : at + len(data)] = data
                region.written = at + len(data)
            if opcode == WRITE:
                self.counts["written"] += len(data)
            elif last:
                region, done = self.reads.popleft()
                require(region.stag == stag and region.written == len(region.data), "a short Read Response")
                self.deregister(region)
                done(bytes(region.data))
            return
        queue, msn, offset = struct.unpack(">III", ulpdu[6:18])
        if opcode == READ:
            require(queue == 1 and msn == self.counts["reads"] + 1, "a Read Request out of order")
            self.counts["reads"] += 1
            sink, sink_to, octets, stag, to = struct.unpack(">IQIIQ", ulpdu[18:46])
            region, at = self.place(stag, to, octets, "read")
            self.counts["read"] += octets
            self.tagged(RESPONSE, sink, sink_to, region.data[at : at + octets])
        elif opcode == TERMINATE:
            raise Closed("terminated %s" % ulpdu[18:22].hex())
        else:
            require(opcode in (3, 4, 5, 6), "opcode %d" % opcode)
            require(queue == 0 and msn == self.msn_in and offset == len(self.assembly), "a Send out of order")
            self.assembly += ulpdu[18:]
            if last:
                message, self.assembly = bytes(self.assembly), bytearray()
                self.msn_in += 1
                invalidated = struct.unpack(">I", ulpdu[2:6])[0] if opcode in (4, 6) else None
                if invalidated is not None:
                    require(invalidated in self.regions, "Send with Invalidate of %#x" % invalidated)
                    del self.regions[invalidated]
                    self.counts["invalidated"] += 1
                deliver(message, invalidated)


# ------------------------------------------------------------------------------------------ the protocol

HELLO, HELLO_ACK, DISCONN, ABORT, SEND_SM, WR_COMPL, RD_COMPL, MODE_CHANGE = range(8)
SRC_CANCEL, SINK_CANCEL, CANCEL_ACK, RESIZE, RESIZE_ACK, SUSPEND, SUSPEND_ACK = range(8, 15)
SINK_AVAIL, SRC_AVAIL, DATA = 0xFD, 0xFE, 0xFF
EXTENSIONS = {DISCONN: 0, ABORT: 0, SEND_SM: 0, WR_COMPL: 4, RD_COMPL: 4, MODE_CHANGE: 4, SRC_CANCEL: 0}
EXTENSIONS |= {SINK_CANCEL: 0, CANCEL_ACK: 0, RESIZE: 4, RESIZE_ACK: 4, SUSPEND: 8, SUSPEND_ACK: 0}
EXTENSIONS |= {SINK_AVAIL: 20, SRC_AVAIL: 16, DATA: 0}
NAMES = {DISCONN: "DisConn", ABORT: "AbortConn", SEND_SM: "SendSm", WR_COMPL: "RdmaWrCompl"}
NAMES |= {RD_COMPL: "RdmaRdCompl", MODE_CHANGE: "ModeChange", SRC_CANCEL: "SrcAvailCancel"}
NAMES |= {SINK_CANCEL: "SinkAvailCancel", CANCEL_ACK: "SinkCancelAck", RESIZE: "ChRcvBuf"}
NAMES |= {RESIZE_ACK: "ChRcvBufAck", SUSPEND: "SuspComm", SUSPEND_ACK: "SuspCommAck"}
NAMES |= {SINK_AVAIL: "SinkAvail", SRC_AVAIL: "SrcAvail", DATA: "Data"}
OOB_PRES, OOB_PEND, REQ_PIPE = 1, 2, 4
MODES = ["buffered", "combined", "pipelined"]
#: Who may ask for a change of one half: its source, or its sink.
SOURCE_CHANGES = {("combined", "buffered"), ("combined", "pipelined"), ("pipelined", "combined")}
U32 = 0xFFFFFFFF


def distance(a, b):
    """a - b, where both are numbers modulo 2^32."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


class Item:
    """Octets to send, or something that has its turn among them."""

    def __init__(self, kind, data=b"", how="data"):
        self.kind, self.data, self.how = kind, data, how
        self.sent = 0  # octets that have been sent, or that the other side says it has read
        self.state = "queued"  # or advertised, or copying
        self.region = None


class Source:
    """An advertisement of the other side."""

    def __init__(self, octets, stag, to, inline):
        self.octets, self.stag, self.to = octets, stag, to
        self.issued = self.arrived = self.inline = inline


class Place:
    def __init__(self, region, mseq):
        self.region, self.mseq = region, mseq


class Sdp:
    def __init__(self, link, options, active):
        self.link, self.active = link, active
        self.max_adverts = options.get("maxAdverts", 16)
        self.size = options.get("size", 1040)  # of our private buffers
        self.most_size = options.get("mostSize", self.size)
        self.version = options.get("version", 0x22)
        self.form = options.get("form", "long")
        self.invalidates = options.get("invalidates", False)
        self.follow = options.get("follow", True)  # go to pipelined mode when asked
        self.want = options.get("bufs", 8)
        self.buffers = collections.deque([self.size] * self.want)
        # Numbers of messages and what is known of credits (page, section 4).
        self.sent = self.received = self.acked = 0
        self.limit = 0
        self.announced = self.granted = self.want
        self.limit_at = {0: self.want}
        self.peer_announced = 0
        self.hold = None  # MSeqAck stays below this SrcAvailCancel
        self.controls = collections.deque()
        self.update_wanted = False
        # Our sending half.
        self.out = collections.deque()
        self.mode = "combined"
        self.peer_places = collections.deque()  # [octets, stag, to, filled]
        self.count = 0  # messages with payload that discarded nothing
        self.last_payload = 0
        self.changed = None  # (mseq, count) of the latest change from pipelined to combined
        self.asked = False
        self.cancel = None  # {"mseq", "answered"}
        self.spare = False
        self.resizing = False
        self.disconn = None  # waiting, sent
        # Our receiving half.
        self.sink_mode = "combined"
        self.sources = collections.deque()
        self.places = collections.deque()
        self.non_discards = 0
        self.policy, self.part = "read", 1 << 30
        self.paused, self.waiting = False, []
        self.reading = False
        self.owed = 0
        self.cancelled = False
        self.wanted_places = (0, 0)
        self.withdrawing = False
        self.growing = False
        self.ended = False
        self.digest, self.octets = hashlib.sha256(), 0
        self.stats = {"in": collections.Counter(), "out": collections.Counter(), "modes": []}
        self.urgent = None

    # ------------------------------------------------------------------------------------------------ set-up

    def head(self, mid, length):
        return struct.pack(">BBHIII", mid, 0, self.want, length, 0, 0)

    def hello(self):
        length = 64 if self.form == "short" else 68
        capabilities = (1 if self.invalidates else 0) | (2 if length == 68 else 0)
        data = self.head(HELLO, length)
        port = self.link.sock.getsockname()[1]
        data += struct.pack(">BBBB", self.version, 0x40 | capabilities, 0, min(255, self.max_adverts))
        data += struct.pack(">IIHH", 0x10000, self.size, port, 0)
        data += b"\0" * 12 + socket.inet_aton(self.link.sock.getsockname()[0])
        data += b"\0" * 12 + socket.inet_aton(self.link.sock.getpeername()[0])
        if length == 68:
            data += struct.pack(">HH", 0, self.max_adverts)
        return data + (b"\0" * 24 if self.form == "padded" else b"")

    def hello_arrived(self, data):
        """Returns HelloAck."""
        mid, _, bufs, length, mseq, ack = struct.unpack(">BBHIII", data[:16])
        version, ip, _, adverts, desired, size = struct.unpack(">BBBBII", data[16:28])
        require(mid == HELLO and 64 <= length <= len(data), "no Hello")
        require(mseq == 0 and ack == 0, "numbers in the Hello")
        require(version >> 4 in (1, 2) and ip >> 4 in (4, 6), "version or address family")
        if ip & 2 and length >= 68:
            (adverts,) = struct.unpack(">H", data[66:68])
        self.learn(bufs, adverts, size, ip & 1)
        fields = {"version": version, "maxAdverts": adverts, "bufs": bufs, "size": size, "length": length}
        emit("hello", desired=desired, **fields)
        answer = self.head(HELLO_ACK, 24)
        answer += struct.pack(">BBBB", version, 0x40 | self.invalidates, 0, min(255, self.max_adverts))
        answer += struct.pack(">I", self.size)
        return answer + (b"\0" * 172 if self.form == "padded" else b"")

    def ack_arrived(self, data):
        require(len(data) >= 24, "HelloAck of %d octets" % len(data))
        mid, _, bufs, length, mseq, ack = struct.unpack(">BBHIII", data[:16])
        version, ip, _, adverts, size = struct.unpack(">BBBBI", data[16:24])
        require(mid == HELLO_ACK and 24 <= length <= len(data), "no HelloAck")
        require(mseq == 0 and ack == 0 and version >> 4 == self.version >> 4, "HelloAck's numbers or version")
        self.learn(bufs, adverts, size, ip & 1)
        emit("hello", version=version, maxAdverts=adverts, bufs=bufs, size=size, length=length)

    def learn(self, bufs, adverts, size, invalidates):
        require(bufs >= 4 and size >= 64 and adverts > 0, "too few or too small buffers, or no adverts")
        self.limit = self.peer_announced = bufs
        self.peer_adverts, self.send_size, self.peer_invalidates = adverts, size - 16, bool(invalidates)
        self.peer_size = size

    # ----------------------------------------------------------------------------------------------- messages

    def ack(self):
        return self.received if self.hold is None else (self.hold - 1) & U32

    def gives(self):
        return distance(self.ack() + len(self.buffers), self.announced) > 0

    def may(self, payload):
        if not self.link.spoken:
            return False
        credits = distance(self.limit, self.sent)
        if payload:
            return credits >= 3 and not self.controls
        return credits >= 2 or (credits == 1 and self.gives())

    def message(self, mid, extension=b"", payload=b"", flags=0, invalidate=None):
        self.sent = (self.sent + 1) & U32
        if self.wants_places() and self.sink_mode == "combined" and mid not in (ABORT, DISCONN):
            flags |= REQ_PIPE
        ack, bufs = self.ack(), len(self.buffers)
        self.announced = (ack + bufs) & U32
        self.limit_at[self.sent] = self.announced
        if distance(self.announced, self.granted) > 0:
            self.granted = self.announced
        length = 16 + len(extension) + len(payload)
        head = struct.pack(">BBHIII", mid, flags, bufs, length, self.sent, ack)
        self.link.send(head + extension + payload, bool(flags & 3), invalidate)
        self.stats["out"]["Update" if mid == DATA and not payload else NAMES[mid]] += 1
        self.update_wanted = False
        return self.sent

    def control(self, mid, extension=b"", then=None, invalidate=None):
        self.controls.append((mid, extension, then, invalidate))

    def flush(self):
        while self.controls:
            last = distance(self.limit, self.sent) < 2
            if self.hold is not None and last and not self.reading:
                self.hold = None  # with the last credit, else both sides could wait for ever
            if not self.may(False):
                return
            mid, extension, then, invalidate = self.controls.popleft()
            mseq = self.message(mid, extension, invalidate=invalidate)
            if then is not None:
                then(mseq)
        known = distance(self.announced, self.received)
        fresh = distance(self.received + len(self.buffers), self.announced)
        due = self.hold is None and ((known < 3 and fresh > 0) or fresh >= max(2, self.want // 2))
        if self.cancel is not None and distance(self.limit, self.sent) <= 3:
            due = False
        if (due or self.update_wanted) and not self.ended_both() and self.may(False):
            self.message(DATA)

    def arrived(self, data, invalidated):
        require(len(data) >= 16, "a message of %d octets" % len(data))
        mid, flags, bufs, length, mseq, ack = struct.unpack(">BBHIII", data[:16])
        require(length == len(data), "Len is %d in a message of %d octets" % (length, len(data)))
        require(mid in EXTENSIONS and flags <= 7, "message id %#x with flags %d" % (mid, flags))
        body = 16 + EXTENSIONS[mid]
        fits = length == body or (length > body and mid >= SINK_AVAIL)
        require(fits, "%s of %d octets" % (NAMES[mid], length))
        require(len(self.buffers) > 0, "a message without a private buffer")
        room = self.buffers.popleft()
        require(length <= room, "a message of %d octets for a buffer of %d" % (length, room))
        self.judge_numbers(mid, length > body, bufs, mseq, ack)
        self.stats["in"]["Update" if mid == DATA and length == 16 else NAMES[mid]] += 1
        require(invalidated is None or (self.invalidates and mid == RD_COMPL), "Send with Invalidate")
        if flags & REQ_PIPE:
            require(self.max_adverts > 1, "REQ_PIPE to a peer that takes one advertisement")
            self.asked = self.mode == "combined"
        if flags & OOB_PRES:
            require(mid == DATA and length > 16, "OOB_PRES without data")
        payload = data[body:]
        if self.paused and payload:
            self.waiting.append((payload, True))
        else:
            self.buffers.append(self.size)
        fields = struct.unpack(">I", data[16:20])[0] if EXTENSIONS[mid] >= 4 else 0
        if mid == RD_COMPL:
            self.read_reported(fields, invalidated)
        else:
            self.handle(mid, fields, data, payload, mseq, ack)
        if self.growing and all(size == self.size for size in self.buffers) and not self.waiting:
            self.growing = False
            self.control(RESIZE_ACK, struct.pack(">I", self.size))
        self.acknowledged()

    def judge_numbers(self, mid, payload, bufs, mseq, ack):
        require(mseq == (self.received + 1) & U32, "MSeq %d behind %d" % (mseq, self.received))
        require(distance(mseq, self.granted) <= 0, "a message without a credit")
        require(0 <= distance(ack, self.acked) and distance(ack, self.sent) <= 0, "MSeqAck %d" % ack)
        limit = (ack + bufs) & U32
        if self.cancel is None:
            # All that the other side can have known: our message that it acknowledges.
            credits = distance(self.limit_at[ack], (mseq - 1) & U32)
            gives = distance(limit, self.peer_announced) > 0
            needed = 3 if payload or mid == SRC_AVAIL else 1 if gives else 2
            if mid != ABORT:
                words = "%s with %d credits where %d are needed" % (NAMES[mid], credits, needed)
                require(credits >= needed, words)
            require(distance(limit, self.sent) >= 0, "fewer credits than are in use")
        self.received, self.limit, self.peer_announced = mseq, limit, limit
        for old in range(self.acked, ack):
            self.limit_at.pop(old, None)
        self.acked = ack

    # --------------------------------------------------------------------------------------- the sending half

    def advertised(self):
        return [item for item in self.out if item.state == "advertised"]

    def payload_sent(self, mseq, counts):
        self.last_payload = mseq
        if counts:
            self.count = (self.count + 1) & U32

    def send_some(self, item, flags=0):
        """Data from private buffers. It discards the oldest place at hand, which has to be whole."""
        if self.peer_places and self.peer_places[0][3] > 0:
            self.complete_place()
        if not self.may(True):
            return False
        part = item.data[item.sent : item.sent + self.send_size]
        mseq = self.message(DATA, payload=part, flags=flags)
        item.sent += len(part)
        self.payload_sent(mseq, not self.peer_places)
        if self.peer_places:
            self.peer_places.popleft()
        return True

    def complete_place(self):
        octets, _, _, filled = self.peer_places.popleft()
        self.control(WR_COMPL, struct.pack(">I", filled))

    def write_some(self, item):
        place = self.peer_places[0]
        part = item.data[item.sent : item.sent + place[0] - place[3]]
        self.link.write(place[1], place[2] + place[3], part)
        place[3] += len(part)
        item.sent += len(part)
        last = item.sent == len(item.data) and all(other.kind == "end" or other is item for other in self.out)
        if place[0] - place[3] < self.send_size or last:
            self.complete_place()

    def advertise(self, item):
        if not self.may(True):
            return False
        rest = item.data[item.sent :]
        item.region = self.link.register(rest, "read")
        inline = rest[: min(self.send_size - 16, max(1, len(rest) // 3))] if self.mode == "combined" else b""
        extension = struct.pack(">IIQ", len(rest), item.region.stag, item.region.base)
        mseq = self.message(SRC_AVAIL, extension, inline)
        item.state = "advertised"
        if inline:
            item.sent += len(inline)
            self.payload_sent(mseq, True)
        return True

    def unadvertise(self, item, state):
        if item.region is not None:
            self.link.deregister(item.region)
        item.region, item.state = None, state

    def step(self):
        """The next thing that the sending half can do; False if there is none."""
        if self.cancel is not None:
            return False
        out = len(self.advertised())
        item = next((item for item in self.out if item.state != "advertised"), None)
        if item is None or not self.link.spoken:
            return False
        if self.asked and self.follow and self.mode == "combined" and out == 0 and self.peer_adverts > 1:
            return self.change("pipelined")
        if item.kind == "mode":
            if self.mode != item.how and (out > 0 or self.peer_places or not self.change(item.how)):
                return False
            self.out.remove(item)
            return True
        if item.kind == "end":
            if self.peer_places and self.peer_places[0][3] > 0:
                self.complete_place()
            if out > 0 or self.controls:
                return False
            self.out.remove(item)
            self.disconn = "waiting"
            self.control(DISCONN, then=lambda mseq: setattr(self, "disconn", "sent"))
            return True
        left = len(item.data) - item.sent
        if left == 0:
            self.out.remove(item)
            return True
        if item.kind == "urgent":
            if out > 0 or not self.may(True):
                return False
            if item.state == "queued":
                item.state = "copying"
                self.message(DATA, flags=OOB_PEND)
                return True
            return self.send_some(item, OOB_PRES if left <= self.send_size else OOB_PEND)
        if item.state == "copying":
            return self.send_some(item)
        if self.peer_places and item.how != "data":
            if not self.may(False):
                return False
            self.write_some(item)
            return True
        most = self.peer_adverts if self.mode == "pipelined" else 1
        if item.how == "source" and self.mode != "buffered" and left > 1:
            return out < most and self.advertise(item)
        return out == 0 and self.send_some(item)

    def change(self, mode):
        if not self.may(False) or self.controls:
            return False
        require((self.mode, mode) in SOURCE_CHANGES, "a change that no peer may make: %s" % mode)
        mseq = self.message(MODE_CHANGE, bytes([MODES.index(mode) << 4, 0, 0, 0]))
        if mode == "combined":
            self.changed = [mseq, self.count]
        self.mode, self.asked = mode, False
        self.stats["modes"].append("send " + mode)
        return True

    def acknowledged(self):
        """Our cancel is over when MSeqAck has reached it, and SendSm came or nothing is out."""
        cancel = self.cancel
        if cancel is None or cancel["mseq"] is None or distance(self.acked, cancel["mseq"]) < 0:
            return
        if not cancel["answered"] and self.advertised():
            return
        self.cancel, self.spare = None, True
        for item in self.advertised():
            self.unadvertise(item, "copying")
        emit("cancelled")

    # ------------------------------------------------------------------------------------- the receiving half

    def deliver_placed(self, data):
        """Octets that came without a private buffer: a pause keeps them behind the octets that wait already."""
        if self.paused:
            self.waiting.append((data, False))
        else:
            self.deliver(data)

    def deliver(self, data):
        self.digest.update(data)
        self.octets += len(data)

    def wants_places(self):
        return self.wanted_places[1] > 0 and min(self.peer_adverts, self.max_adverts) > 1

    def data_arrived(self, payload):
        require(not self.ended, "data behind DisConn")
        if self.owed > 0:
            require(len(payload) <= self.owed or not self.sources, "more data than a SendSm has asked for")
            self.owed = max(0, self.owed - len(payload))
        else:
            require(not self.sources, "data behind a SrcAvail that is not answered")
        if self.places:
            place = self.places.popleft()
            require(place.region.written == 0, "data over a place that has been written")
            self.link.deregister(place.region)
            require(len(payload) <= len(place.region.data), "data longer than the place")
        else:
            self.non_discards = (self.non_discards + 1) & U32
        if not self.paused:
            self.deliver(payload)

    def source_arrived(self, octets, stag, to, inline, ack):
        require(not self.ended, "SrcAvail behind DisConn")
        require(self.sink_mode != "buffered", "SrcAvail in buffered mode")
        if self.sink_mode == "combined":
            require(0 < len(inline) < octets, "SrcAvail of %d with %d inline" % (octets, len(inline)))
            require(not self.sources, "a second SrcAvail in combined mode")
        else:
            require(octets > 0 and not inline, "SrcAvail of %d with %d inline" % (octets, len(inline)))
            require(len(self.sources) < self.max_adverts, "one SrcAvail too many")
        if self.places:  # ours wins: the other side issues its own again
            require(distance(ack, self.places[-1].mseq) < 0, "SrcAvail where a SinkAvail is known")
            return
        require(self.owed == 0 or self.sink_mode == "pipelined", "SrcAvail before the data of a SendSm")
        if inline:
            self.non_discards = (self.non_discards + 1) & U32
            if not self.paused:
                self.deliver(inline)
        self.sources.append(Source(octets, stag, to, len(inline)))

    def read_on(self):
        if self.reading or self.paused or self.cancelled or self.owed > 0 or self.controls:
            return
        while self.sources:
            source = self.sources[0]
            left = source.octets - source.issued
            done = source.issued - source.inline
            if self.policy == "stall":
                return
            half = self.policy == "half" and done * 2 >= source.octets - source.inline
            if self.policy == "refuse" or half:
                self.sources.popleft()
                self.owed += left
                self.control(SEND_SM)
                return
            octets = min(left, self.part)
            if self.policy == "half":
                octets = min(octets, (source.octets - source.inline + 1) // 2)
            self.reading = True
            place = source.to + source.issued
            self.link.read(source.stag, place, octets, lambda data: self.read_done(source, data))
            source.issued += octets
            return

    def read_done(self, source, data):
        self.reading = False
        source.arrived += len(data)
        self.deliver_placed(data)
        whole = source.arrived == source.octets
        stag = source.stag if whole and self.peer_invalidates else None
        if whole:
            self.sources.remove(source)
        self.control(RD_COMPL, struct.pack(">I", len(data)), invalidate=stag)

    def answer_cancel(self):
        if not self.cancelled or self.reading or self.controls:
            return
        self.cancelled = False
        left = sum(source.octets - source.arrived for source in self.sources)
        self.sources.clear()
        self.owed += left
        self.hold = None
        if left > 0:
            self.control(SEND_SM)
        else:
            self.update_wanted = True

    def advertise_places(self):
        octets, count = self.wanted_places
        # Written octets may not overtake data, nor what has been advertised.
        if self.sources or self.waiting or self.owed or self.withdrawing or self.ended or self.controls:
            return
        if self.sink_mode != "pipelined" or octets < self.size - 16:
            return
        while len(self.places) < min(count, self.peer_adverts, 254) and self.may(False):
            region = self.link.register(bytearray(octets), "write")
            extension = struct.pack(">IIQI", octets, region.stag, region.base, self.non_discards)
            self.places.append(Place(region, self.message(SINK_AVAIL, extension)))

    # ------------------------------------------------------------------------------------------- what arrives

    def handle(self, mid, word, data, payload, mseq, ack):
        if mid == DATA:
            if payload:
                self.data_arrived(payload)
        elif mid == SRC_AVAIL:
            octets, stag, to = struct.unpack(">IIQ", data[16:32])
            self.source_arrived(octets, stag, to, payload, ack)
        elif mid == SINK_AVAIL:
            self.place_arrived(*struct.unpack(">IIQI", data[16:36]), ack)
            if payload:
                self.data_arrived(payload)
        elif mid == DISCONN:
            require(not self.ended, "a second DisConn")
            require(not self.sources and self.owed == 0, "DisConn before all octets were moved")
            self.ended = True
            self.drop_places()
            if not self.waiting:
                self.tell_end()
            if self.disconn == "sent":
                self.update_wanted = False
        elif mid == ABORT:
            raise Closed("aborted")
        elif mid == WR_COMPL:
            self.write_reported(word)
        elif mid == SEND_SM:
            self.send_small()
        elif mid == MODE_CHANGE:
            self.mode_changed(word)
        elif mid == SRC_CANCEL:
            self.cancelled, self.hold = True, mseq
        elif mid == SINK_CANCEL:
            if self.peer_places and self.peer_places[0][3] > 0:
                self.complete_place()
            self.peer_places.clear()
            self.control(CANCEL_ACK)
        elif mid == CANCEL_ACK:
            require(self.withdrawing, "SinkCancelAck without a cancel")
            self.withdrawing = False
            require(all(place.region.written == 0 for place in self.places), "a written place was dropped")
            self.drop_places()
            emit("withdrawn")
        elif mid == RESIZE:
            self.grow(word)
        elif mid == RESIZE_ACK:
            require(self.resizing and word >= self.peer_size, "ChRcvBufAck of %d" % word)
            self.resizing, self.peer_size, self.send_size = False, word, word - 16
            emit("resized", size=word)
        else:
            raise Fault("message id %#x" % mid)

    def tell_end(self):
        emit("ended", octets=self.octets, sha256=self.digest.hexdigest())

    def drop_places(self):
        for place in self.places:
            self.link.deregister(place.region)
        self.places.clear()

    def grow(self, desired):
        size = min(desired, self.most_size)
        if size <= self.size:
            self.control(RESIZE_ACK, struct.pack(">I", self.size))
            return
        self.size, self.growing = size, True

    def read_reported(self, octets, invalidated):
        items = self.advertised()
        require(items, "RdmaRdCompl without a SrcAvail")
        item = items[0]
        left = len(item.data) - item.sent
        require(0 < octets <= left, "RdmaRdCompl of %d where %d are left" % (octets, left))
        # Of this SrcAvail, and with the last of its octets, to a side that takes it.
        mine = item.region.stag if self.invalidates and octets == left else None
        require(invalidated == mine, "RdmaRdCompl that invalidates %s" % invalidated)
        item.sent += octets
        if octets == left:
            self.unadvertise(item, "queued")
            self.out.remove(item)

    def write_reported(self, octets):
        require(self.places, "RdmaWrCompl without a SinkAvail")
        place = self.places.popleft()
        self.link.deregister(place.region)
        require(0 < octets == place.region.written, "RdmaWrCompl of %d where %d were written"
                % (octets, place.region.written))
        require(not self.ended, "RdmaWrCompl behind DisConn")
        self.deliver_placed(bytes(place.region.data[:octets]))

    def send_small(self):
        if self.cancel is not None and not self.cancel["answered"]:
            self.cancel["answered"] = True
            return
        items = self.advertised()
        if not items and self.spare:
            self.spare = False
            return
        require(items, "SendSm without a SrcAvail")
        self.unadvertise(items[0], "copying")

    def mode_changed(self, word):
        require(word & 0x0FFFFFFF == 0 and word >> 28 & 7 < 3, "ModeChange %#x" % word)
        mode = MODES[word >> 28 & 7]
        if word >> 31:
            require(self.mode == "buffered" and mode == "combined", "a change of our half to " + mode)
            self.mode, self.asked = mode, False
            self.stats["modes"].append("asked " + mode)
            return
        require((self.sink_mode, mode) in SOURCE_CHANGES, "a change from %s to %s" % (self.sink_mode, mode))
        require(self.max_adverts > 1, "ModeChange to a peer that takes one advertisement")
        require(not self.sources and self.owed == 0, "ModeChange while something is unanswered")
        require(all(place.region.written == 0 for place in self.places), "ModeChange over a written place")
        self.drop_places()
        self.sink_mode = mode
        self.stats["modes"].append("receive " + mode)

    def place_arrived(self, octets, stag, to, non_discards, ack):
        require(self.max_adverts > 1, "SinkAvail to a peer that takes one advertisement")
        if self.mode != "pipelined":
            crossed = self.changed is not None and distance(ack, self.changed[0]) < 0
            require(crossed, "SinkAvail in %s mode" % self.mode)
            if non_discards != self.changed[1]:
                self.changed[1] = (self.changed[1] - 1) & U32
                self.count = (self.count - 1) & U32
            return
        require(octets >= self.send_size, "SinkAvail of %d octets" % octets)
        require(len(self.peer_places) < self.max_adverts, "one SinkAvail too many")
        if non_discards != self.count:
            words = "NonDiscards %d where %d is right" % (non_discards, self.count)
            require(distance(ack, self.last_payload) < 0, words)
            self.count = (self.count - 1) & U32
            self.stats["in"]["stale"] += 1
            return
        for item in self.advertised():
            self.unadvertise(item, "queued")
            self.stats["in"]["crossed"] += 1
        self.peer_places.append([octets, stag, to, 0])

    # ---------------------------------------------------------------------------------------------- the whole

    def pump(self):
        before = None
        while before != (self.sent, len(self.out), self.reading, len(self.controls)):
            before = (self.sent, len(self.out), self.reading, len(self.controls))
            self.flush()
            while self.step():
                self.flush()
            if self.peer_places and self.peer_places[0][3] > 0 and not self.out:
                self.complete_place()
            self.read_on()
            self.answer_cancel()
            self.flush()
            self.advertise_places()

    def ended_both(self):
        return self.ended and self.disconn == "sent" and not self.controls and not self.waiting

    def report(self):
        fields = {"octets": self.octets, "queued": len(self.out), "advertised": len(self.advertised())}
        fields |= {"sources": len(self.sources), "places": len(self.places), "posted": len(self.buffers)}
        fields |= {"peerPlaces": len(self.peer_places), "mode": self.mode, "sinkMode": self.sink_mode}
        fields |= {"sendSize": self.send_size, "credits": distance(self.limit, self.sent)}
        return {**fields, **self.link.counts, **self.stats}

    def command(self, command):
        do = command["do"]
        if do in ("write", "urgent"):
            data = content(command.get("seed", 1), command["octets"])
            self.out.append(Item("urgent" if do == "urgent" else "data", data, command.get("how", "data")))
        elif do == "end":
            self.out.append(Item("end"))
        elif do == "abort":
            self.message(ABORT)
        elif do == "mode":
            self.out.append(Item("mode", how=command["mode"]))
        elif do == "combined":  # the sink of a buffered half may ask for it
            require(self.sink_mode == "buffered", "the half is not buffered")
            self.sink_mode = "combined"
            self.control(MODE_CHANGE, bytes([0x90, 0, 0, 0]))
        elif do == "cancel":
            if self.advertised() and self.cancel is None:
                cancel = self.cancel = {"mseq": None, "answered": False}
                self.control(SRC_CANCEL, then=lambda mseq: cancel.update(mseq=mseq))
        elif do == "policy":
            self.policy, self.part = command["policy"], command.get("part", 1 << 30)
        elif do == "pause":
            self.paused = True
        elif do == "resume":
            self.paused = False
            waiting, self.waiting = self.waiting, []
            for data, in_buffer in waiting:
                self.deliver(data)
                if in_buffer:
                    self.buffers.append(self.size)
            if self.ended:
                self.tell_end()
        elif do == "places":
            self.wanted_places = (command["octets"], command["count"])
            self.update_wanted = self.wants_places()
        elif do == "withdraw":
            self.wanted_places = (0, 0)
            self.withdrawing = True
            self.control(SINK_CANCEL)
        elif do == "resize":
            self.resizing = True
            self.control(RESIZE, struct.pack(">I", command["size"]))
        elif do == "report":
            emit("report", **self.report())
        elif do == "quit":
            raise SystemExit


def loop(sdp, link):
    sock = link.sock
    sock.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(sock, selectors.EVENT_READ)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    lines, shut = b"", False
    sdp.pump()
    while True:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.outbox else 0)
        selector.modify(sock, events)
        for key, ready in selector.select():
            if key.fileobj is not sock:
                part = os.read(sys.stdin.fileno(), 65536)
                if not part:
                    return
                lines += part
                *whole, lines = lines.split(b"\n")
                for line in whole:
                    sdp.command(json.loads(line))
            elif ready & selectors.EVENT_READ:
                data = sock.recv(1 << 18)
                if not data:
                    raise Closed("in order" if sdp.ended_both() else "early")
                link.feed(data, sdp.arrived)
        sdp.pump()
        if link.outbox:
            try:
                del link.outbox[: sock.send(link.outbox)]
            except BlockingIOError:
                pass
        if sdp.ended_both() and not link.outbox and not shut:
            shut = True
            sock.shutdown(socket.SHUT_WR)


def main():
    role, *rest = sys.argv[1:]
    options = json.loads(rest[-1]) if rest and rest[-1].startswith("{") else {}
    segment = options.get("segment", 1442)
    if role == "connect":
        sock = socket.create_connection((rest[0], int(rest[1])), 10)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        emit("listening", port=listener.getsockname()[1])
        sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link = Link(sock, segment)
    sdp = Sdp(link, options, role == "connect")
    try:
        if role == "connect":
            data, rtr = link.connect(sdp.hello(), options.get("revision", 1))
            sdp.ack_arrived(data)
            sdp.update_wanted = not rtr
        else:
            link.accept(sdp.hello_arrived)
        emit("up")
        loop(sdp, link)
    except Fault as fault:
        emit("fault", what=str(fault))
    except Closed as closed:
        # When both sides have said all, a last update that found us gone ends their stream with a Terminate.
        why = "in order" if sdp.ended_both() else str(closed)
        emit("closed", why=why, **(sdp.report() if hasattr(sdp, "send_size") else {}))
    except OSError as error:
        emit("closed", why="reset", error=type(error).__name__)
    sock.close()


if __name__ == "__main__":
    main()
