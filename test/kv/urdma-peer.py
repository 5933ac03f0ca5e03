#!/usr/bin/env python3
"""A client and a server of the paper's key-value store in another language, over iWARP on TCP. Written from
the RFCs and the page, not from our code.

    urdma-peer.py connect HOST PORT      a client; commands on standard input, an answer each
    urdma-peer.py listen                 a server with a dictionary; prints its port

Commands: `set KEY TEXT`, `get KEY` (by message: the server Writes the value), `read KEY` and `write KEY TEXT`
(by RDMA Read and Write, at the place that the last reply has named), `raw HEX` (prints the reply), `quit`.
"""
import queue
import socket
import struct
import sys
import threading

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
HEAD = ">BBHBBHIIQIIQ"  # memcached's header, then STag, length and offset: 40 octets
STAG = 0x5EED0001
BASE = 0x0000_7F00_0000_0000
SLOT = 20480

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for octet in data:
        crc = crc >> 8 ^ TABLE[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def frame(magic, opcode, opaque, status=0, version=0, place=(0, 0, 0), extras=b"", key=b"", value=b""):
    body = extras + key + value
    head = struct.pack(
        HEAD, magic, opcode, len(key), len(extras), 0, status, len(body), opaque, version, *place
    )
    return head + body


def parse(message):
    fields = struct.unpack(HEAD, message[:40])
    magic, opcode, key_length, extras_length, _, status, body, opaque, version = fields[:9]
    if len(message) != 40 + body:
        raise ValueError("the lengths disagree")
    extras = message[40 : 40 + extras_length]
    key = message[40 + extras_length : 40 + extras_length + key_length]
    value = message[40 + extras_length + key_length :]
    return magic, opcode, opaque, status, version, fields[9:], extras, key, value


class Peer:
    def __init__(self, sock):
        self.sock = sock
        self.memory = bytearray(64 * SLOT)
        self.lock = threading.Lock()
        self.messages = queue.Queue()
        self.reads = threading.Semaphore(0)
        self.assembly = b""
        self.sent = 0
        self.read_msn = 0

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def startup(self, key):
        head = self.exactly(20)
        if head[:16] != key:
            raise ValueError("wrong key")
        return head[16], head[17], self.exactly(struct.unpack(">H", head[18:])[0])

    def connect(self):
        self.sock.sendall(REQUEST_KEY + bytes([0x40, 1, 0, 0]))
        flags, _, data = self.startup(REPLY_KEY)
        if flags & 0x20:
            raise ValueError("rejected")
        if data:
            raise ValueError("private data that the page does not have")

    def accept(self):
        _, revision, data = self.startup(REQUEST_KEY)
        mine, flags = b"", 0x40
        if revision == 2:
            ird, ord_ = struct.unpack(">HH", data[:4])
            rtr = 0x8000 if ird & 0x8000 and ord_ & 0x8000 else 0  # a zero-length Write, if offered
            mine, flags = struct.pack(">HH", (ird & 0x8000) | 16, rtr | 16), 0x50
        self.sock.sendall(REPLY_KEY + bytes([flags, revision]) + struct.pack(">H", len(mine)) + mine)

    def fpdu(self, ulpdu):
        data = struct.pack(">H", len(ulpdu)) + ulpdu
        data += b"\0" * (-len(data) % 4)
        with self.lock:
            self.sock.sendall(data + struct.pack("<I", crc32c(data)))

    def tagged(self, opcode, stag, to, data):
        at = 0
        while True:
            part = bytes(data[at : at + 1400])
            last = 0x40 if at + len(part) == len(data) else 0
            self.fpdu(bytes([0x81 | last, 0x40 | opcode]) + struct.pack(">IQ", stag, to + at) + part)
            at += len(part)
            if last:
                return

    def send(self, data):
        self.sent += 1
        at = 0
        while True:
            part = data[at : at + 1400]
            last = 0x40 if at + len(part) == len(data) else 0
            head = bytes([0x01 | last, 0x43]) + struct.pack(">IIII", 0, 0, self.sent, at)
            self.fpdu(head + part)
            at += len(part)
            if last:
                return

    def read(self, sink, length, place):
        self.read_msn += 1
        body = struct.pack(">IQIIQ", STAG, sink, length, place[0], place[2])
        self.fpdu(bytes([0x41, 0x41]) + struct.pack(">IIII", 0, 1, self.read_msn, 0) + body)
        self.reads.acquire()

    def receive(self):
        try:
            while True:
                (length,) = struct.unpack(">H", head := self.exactly(2))
                rest = self.exactly(length + -(length + 2) % 4 + 4)
                data = head + rest
                if struct.unpack("<I", data[-4:])[0] != crc32c(data[:-4]):
                    print("bad CRC", flush=True)
                    return
                self.take(rest[:length])
        except (EOFError, OSError):
            self.messages.put(None)
            self.reads.release()

    def take(self, ulpdu):
        opcode = ulpdu[1] & 0x0F
        if ulpdu[0] & 0x80:
            stag, to = struct.unpack(">IQ", ulpdu[2:14])
            data = ulpdu[14:]
            if data:
                if stag != STAG or not BASE <= to <= BASE + len(self.memory) - len(data):
                    print("out of bounds", flush=True)
                    return
                self.memory[to - BASE : to - BASE + len(data)] = data
            if opcode == 2 and ulpdu[0] & 0x40:
                self.reads.release()
        elif opcode == 1:
            sink, sink_to, length, _, source_to = struct.unpack(">IQIIQ", ulpdu[18:46])
            self.tagged(2, sink, sink_to, self.memory[source_to - BASE :][:length])
        elif opcode == 3:
            self.assembly += ulpdu[18:]
            if ulpdu[0] & 0x40:
                self.messages.put(self.assembly)
                self.assembly = b""
        else:
            print("opcode %d: %s" % (opcode, ulpdu[18:].hex()), flush=True)

    # ------------------------------------------------------------------------------------------- the two roles

    def client(self):
        places, opaque = {}, 0x01020304
        for line in sys.stdin:
            word, *rest = line.rstrip("\n").split(" ", 2)
            if word == "quit":
                break
            if word == "raw":
                self.send(bytes.fromhex(rest[0]))
                reply = self.messages.get()
                print("ended" if reply is None else reply.hex(), flush=True)
                continue
            key = rest[0].encode()
            if word == "read":
                place = places[key]
                self.read(BASE, place[1], place)
                print(self.memory[: place[1]].decode(), flush=True)
                continue
            if word == "write":
                value = rest[1].encode()
                self.tagged(0, places[key][0], places[key][2], value)
                print("written", flush=True)
                continue
            opaque += 1
            if word == "get":
                self.send(frame(0x80, 0, opaque, place=(STAG, SLOT, BASE + SLOT), key=key))
            else:
                extras = struct.pack(">II", 0, 0)
                self.send(frame(0x80, 1, opaque, extras=extras, key=key, value=rest[1].encode()))
            magic, _, number, status, _, place, extras, _, _ = parse(self.messages.get())
            if magic != 0x81 or number != opaque:
                print("a wrong reply", flush=True)
                continue
            if status == 0:
                places[key] = place
            if status == 0 and word == "get":
                _, length = struct.unpack(">II", extras)
                print(self.memory[SLOT : SLOT + length].decode(), flush=True)
            else:
                print("status %d" % status, flush=True)

    def server(self):
        slots = {}  # key: [number of the slot, length, version]
        while (message := self.messages.get()) is not None:
            magic, opcode, opaque, _, _, sink, _, key, value = parse(message)
            if magic != 0x80:
                raise ValueError("no request")
            answer = lambda **more: self.send(frame(0x81, opcode, opaque, **more))
            slot = slots.get(key)
            if opcode == 1:
                if slot is None:
                    slot = slots[key] = [len(slots), 0, 0]
                slot[1] = len(value)
                slot[2] += 1
                at = slot[0] * SLOT
                self.memory[at : at + len(value)] = value
                answer(version=slot[2], place=(STAG, slot[1], BASE + at))
            elif opcode == 0 and slot is not None:
                at, length = slot[0] * SLOT, slot[1]
                self.tagged(0, sink[0], sink[2], self.memory[at : at + min(length, sink[1])])
                answer(version=slot[2], place=(STAG, length, BASE + at), extras=struct.pack(">II", 0, length))
            else:
                answer(status=1 if opcode == 0 else 0x81)


def main():
    if sys.argv[1] == "connect":
        sock = socket.create_connection((sys.argv[2], int(sys.argv[3])), 10)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = Peer(sock)
    if sys.argv[1] == "connect":
        peer.connect()
    else:
        peer.accept()
    threading.Thread(target=peer.receive, daemon=True).start()
    if sys.argv[1] == "connect":
        print("up", flush=True)
        peer.client()
    else:
        peer.server()
    sock.close()


main()
