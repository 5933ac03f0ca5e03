#!/usr/bin/env python3
"""A peer of the shared region in another language, written from the RFCs and the page, not from our code.

    peer.py connect HOST PORT LENGTH     MPA revision 1
    peer.py listen LENGTH                prints its port; answers revision 2 with revision 2

Commands come on standard input, a line each: `fill OFFSET TEXT`, `show OFFSET LENGTH`, `write LEN LOFFSET
ROFFSET`, `read LEN LOFFSET ROFFSET`, `quit`. Each prints one line.
"""
import socket
import struct
import sys
import threading

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
STAG = 0x00C0DE01
BASE = 0x0000_1234_5678_0000  # tagged offset of the region's first octet

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


class Peer:
    def __init__(self, sock, length):
        self.sock = sock
        self.memory = bytearray(length)
        self.lock = threading.Lock()
        self.spoken = threading.Event()  # the other side's first FPDU has come (RFC 5044 7.1.2)
        self.reads = []  # lengths of Reads under way
        self.done = threading.Semaphore(0)
        self.msn = 1

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def ticket(self):
        return struct.pack(">QII", BASE, STAG, len(self.memory))

    def startup(self, key):
        head = self.exactly(20)
        if head[:16] != key:
            raise ValueError("wrong key")
        return head[16], head[17], self.exactly(struct.unpack(">H", head[18:])[0])

    def connect(self):
        pd = self.ticket()
        self.sock.sendall(REQUEST_KEY + bytes([0x40, 1]) + struct.pack(">H", len(pd)) + pd)
        flags, _, pd = self.startup(REPLY_KEY)
        if flags & 0x20:
            raise ValueError("rejected")
        self.remote = struct.unpack(">QII", pd)
        self.spoken.set()
        self.tagged(0, self.remote[1], self.remote[0], b"")  # the listener waits for us to speak

    def accept(self):
        _, revision, pd = self.startup(REQUEST_KEY)
        mine = self.ticket()
        flags = 0x40
        if revision == 2:
            ird, ord_ = struct.unpack(">HH", pd[:4])
            pd = pd[4:]
            rtr = 0x8000 if ird & 0x8000 and ord_ & 0x8000 else 0  # a zero-length Write, if offered
            mine = struct.pack(">HH", (ird & 0x8000) | 16, rtr | 16) + mine
            flags |= 0x10
        self.remote = struct.unpack(">QII", pd)
        self.sock.sendall(REPLY_KEY + bytes([flags, revision]) + struct.pack(">H", len(mine)) + mine)

    def fpdu(self, ulpdu):
        frame = struct.pack(">H", len(ulpdu)) + ulpdu
        frame += b"\0" * (-len(frame) % 4)
        with self.lock:
            self.sock.sendall(frame + struct.pack("<I", crc32c(frame)))

    def tagged(self, opcode, stag, to, data):
        at = 0
        while True:
            part = bytes(data[at : at + 1000])
            last = 0x40 if at + len(part) == len(data) else 0
            self.fpdu(bytes([0x81 | last, 0x40 | opcode]) + struct.pack(">IQ", stag, to + at) + part)
            at += len(part)
            if last:
                return

    def receive(self):
        try:
            while True:
                (length,) = struct.unpack(">H", head := self.exactly(2))
                rest = self.exactly(length + -(length + 2) % 4 + 4)
                frame = head + rest
                if struct.unpack("<I", frame[-4:])[0] != crc32c(frame[:-4]):
                    print("bad CRC", flush=True)
                    return
                self.take(rest[:length])
        except (EOFError, OSError):
            self.done.release()

    def take(self, ulpdu):
        self.spoken.set()
        opcode = ulpdu[1] & 0x0F
        if ulpdu[0] & 0x80:
            stag, to = struct.unpack(">IQ", ulpdu[2:14])
            data = ulpdu[14:]
            if data and (stag != STAG or not BASE <= to <= BASE + len(self.memory) - len(data)):
                print("out of bounds", flush=True)
            self.memory[to - BASE : to - BASE + len(data)] = data
            if opcode == 2 and ulpdu[0] & 0x40:
                self.done.release()
        elif opcode == 1:
            sink, sink_to, length, _, source_to = struct.unpack(">IQIIQ", ulpdu[18:46])
            self.tagged(2, sink, sink_to, self.memory[source_to - BASE :][:length])
        else:
            print("opcode %d: %s" % (opcode, ulpdu[18:].hex()), flush=True)

    def run(self):
        threading.Thread(target=self.receive, daemon=True).start()
        for line in sys.stdin:
            word, *rest = line.rstrip("\n").split(" ", 2 if line.startswith("fill") else 3)
            if word == "quit":
                break
            if word == "fill":
                text = rest[1].encode()
                self.memory[int(rest[0]) : int(rest[0]) + len(text)] = text
                print("filled", flush=True)
                continue
            if word == "show":
                at, length = map(int, rest)
                print(self.memory[at : at + length].decode(), flush=True)
                continue
            length, loffset, roffset = map(int, rest)
            self.spoken.wait(10)
            to, stag, _ = self.remote
            if word == "write":
                self.tagged(0, stag, to + roffset, self.memory[loffset : loffset + length])
            elif word == "read":
                body = struct.pack(">IQIIQ", STAG, BASE + loffset, length, stag, to + roffset)
                self.fpdu(bytes([0x41, 0x41]) + struct.pack(">IIII", 0, 1, self.msn, 0) + body)
                self.msn += 1
                self.done.acquire()
            print("done", flush=True)
        self.sock.close()


def main():
    if sys.argv[1] == "connect":
        sock = socket.create_connection((sys.argv[2], int(sys.argv[3])), 10)
        peer = Peer(sock, int(sys.argv[4]))
        peer.connect()
    else:
        server = socket.create_server(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
        sock, _ = server.accept()
        peer = Peer(sock, int(sys.argv[2]))
        peer.accept()
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print("up", flush=True)
    peer.run()


main()
